"""From labelled rows and a pre-trained run to a task model."""
