"""Words of two senses, in sentences that leave no doubt which is meant. The word stands once in each, as it is."""

from __future__ import annotations

Senses = dict[str, tuple[str, ...]]  # two: what each is called → its sentences

SENTENCES: dict[str, Senses] = {
    "apple": {
        "fruit": (
            "She cut the apple into slices and shared it with the children.",
            "He picked a ripe apple from the tree behind the house.",
            "An apple and a piece of cheese were all he had for lunch.",
            "The pie needs sugar, butter and one more sour apple.",
            "I bit into the apple and juice ran down my chin.",
        ),
        "company": (
            "The new phone from Apple sold out within a day.",
            "Shares of Apple rose after the company reported its profits.",
            "She works as an engineer at Apple in California.",
            "In autumn Apple announced a faster laptop and a new tablet.",
            "Developers complained that Apple takes a large fee in its store.",
        ),
    },
    "bank": {
        "money": (
            "The bank raised the interest on its loans again.",
            "He opened an account at the bank to save for a car.",
            "She asked the bank for a mortgage on the house.",
            "My salary is paid straight into the bank every month.",
            "The clerk at the bank refused to cash the cheque.",
        ),
        "river": (
            "They sat on the bank of the river and watched the boats.",
            "Willows grew along the muddy bank of the stream.",
            "The canoe drifted slowly towards the opposite bank.",
            "We pitched our tent on a grassy bank above the water.",
            "The flood had washed away part of the bank below the bridge.",
        ),
    },
    "bat": {
        "animal": (
            "A bat hung upside down from the roof of the cave.",
            "At dusk a small bat flew out of the barn to hunt insects.",
            "The bat finds its prey in the dark by listening for echoes.",
            "Scientists found the virus in the blood of a fruit bat.",
            "We heard the wings of a bat above the trees at night.",
        ),
        "club": (
            "He swung the bat and hit the ball over the fence.",
            "The batter dropped his bat and ran to first base.",
            "She bought a wooden bat and a leather glove for the game.",
            "The ball struck the edge of the bat and flew to the catcher.",
            "Every player on the team has a favourite bat.",
        ),
    },
    "crane": {
        "bird": (
            "A crane stood on one leg at the edge of the marsh.",
            "The white crane spread its wings and rose above the reeds.",
            "In the mating season the male crane dances for the female.",
            "The crane fed on frogs and insects in the wet meadow.",
            "We watched a crane build its nest beside the lake.",
        ),
        "machine": (
            "The crane lifted steel beams to the top of the tower.",
            "A crane at the harbour unloads containers from the ships.",
            "The driver of the crane climbed into his cabin on the building site.",
            "They hired a crane to raise the heavy roof into place.",
            "Strong wind brought down a crane and the workers fled.",
        ),
    },
    "seal": {
        "animal": (
            "A grey seal lay on the rocks and dried its fur in the sun.",
            "The seal dived under the ice to catch fish.",
            "Polar bears wait for a seal to come up for air.",
            "The young seal called for its mother on the beach.",
            "Visitors threw herrings to the seal in the zoo.",
        ),
        "stamp": (
            "The king pressed his seal into the red wax.",
            "Do not open the letter if the seal is broken.",
            "The document bears the official seal of the city.",
            "Without a signature and a seal the contract is not valid.",
            "The envelope was closed with a seal of wax.",
        ),
    },
    "spring": {
        "season": (
            "In spring the fields turn green and the birds return.",
            "The roses should be cut back in early spring.",
            "After a long winter, spring came late that year.",
            "The snow melts in spring and fills the rivers.",
            "Farmers sow the wheat in autumn or in spring.",
        ),
        "coil": (
            "The spring in the mattress is broken and pokes through.",
            "Pull the lever and the spring snaps back into shape.",
            "A steel spring presses the valve against its seat.",
            "The clock stopped because its spring had worn out.",
            "Each wheel is hung on a spring that absorbs the shocks.",
        ),
    },
    "match": {
        "game": (
            "The home team won the match by two goals.",
            "Thousands of fans watched the match in the stadium.",
            "She lost the final match in three sets.",
            "The referee stopped the match because of heavy rain.",
            "He was injured in the first minute of the match.",
        ),
        "flame": (
            "He struck a match and lit the candle.",
            "The match burned down to his fingers before the fire caught.",
            "She held a match to the dry paper in the stove.",
            "Never drop a lit match in a forest.",
            "There was only one match left in the box for the camp fire.",
        ),
    },
    "light": {
        "bright": (
            "The light from the window fell on the table.",
            "Turn off the light before you go to bed.",
            "Seeds need warmth, but leaves need light to grow.",
            "A bright light shone at the end of the tunnel.",
            "The lamp gave so little light that she could not read.",
        ),
        "not heavy": (
            "The suitcase is so light that a child can carry it.",
            "This bicycle has a light frame made of carbon.",
            "For the hike you need a light tent and strong shoes.",
            "A feather is light, but a sack of them is not.",
            "Aluminium is a light metal that is used for aircraft.",
        ),
    },
    "mouse": {
        "animal": (
            "The cat caught a mouse in the kitchen.",
            "A mouse had eaten the cheese in the trap.",
            "The owl heard a mouse run through the leaves.",
            "A field mouse builds its nest in the grass.",
            "She screamed when a grey mouse ran across the floor.",
        ),
        "device": (
            "Click on the icon with the left button of the mouse.",
            "Her computer needs a new keyboard and a wireless mouse.",
            "Move the mouse to the corner of the screen.",
            "The cursor froze because the mouse was not plugged in.",
            "He scrolled down the page with the wheel of his mouse.",
        ),
    },
    "plant": {
        "green": (
            "Water the plant once a week and keep it in the sun.",
            "This plant has yellow flowers and thick leaves.",
            "The roots of the plant take up water from the soil.",
            "A climbing plant covered the whole wall of the garden.",
            "The botanist discovered a rare plant in the mountains.",
        ),
        "factory": (
            "The plant produces four hundred cars a day.",
            "Two thousand workers lost their jobs when the plant closed.",
            "A new power plant will supply the city with electricity.",
            "The chemical plant was fined for polluting the river.",
            "Engineers shut down the nuclear plant after the accident.",
        ),
    },
    "ring": {
        "jewel": (
            "He gave her a gold ring with a small diamond.",
            "She wears a silver ring on her left hand.",
            "The jeweller made the ring a little wider.",
            "On their wedding day he forgot the ring at home.",
            "Her grandmother's ring was set with a blue stone.",
        ),
        "boxing": (
            "The boxer climbed into the ring and raised his fists.",
            "He was knocked down and carried out of the ring.",
            "The champion has not been beaten in the ring for ten years.",
            "Both fighters left the ring with bleeding noses.",
            "The crowd cheered as the heavyweight entered the ring.",
        ),
    },
    "bark": {
        "tree": (
            "The bark of the old oak is rough and deeply cracked.",
            "Beetles live under the bark of dead trees.",
            "Cork is made from the bark of an evergreen oak.",
            "Deer had eaten the bark from the young stems.",
            "The birch has a thin white bark that peels off.",
        ),
        "dog": (
            "The dog gave a loud bark when the postman came.",
            "We heard a bark behind the door and then a growl.",
            "His bark woke the neighbours, but the puppy never bit anyone.",
            "A deep bark told us that the hound had found the fox.",
            "The terrier answered every bark from across the street.",
        ),
    },
    "organ": {
        "body": (
            "The heart is the organ that pumps blood through the body.",
            "Surgeons removed the damaged organ in an operation.",
            "The liver is the largest organ inside the abdomen.",
            "He waited two years for a donor and a new organ.",
            "The disease can spread from one organ to another.",
        ),
        "music": (
            "She plays the organ in church on Sundays.",
            "Bach wrote many of his fugues for the organ.",
            "The pipes of the organ were cleaned and tuned.",
            "He sat down at the organ and opened the score.",
            "The sound of the organ filled the cathedral.",
        ),
    },
    "trunk": {
        "elephant": (
            "The elephant lifted the log with its trunk.",
            "With its trunk the animal sucked up water and sprayed its back.",
            "A baby elephant held its mother's tail with its trunk.",
            "The trunk of an elephant has thousands of muscles.",
            "The old bull raised his trunk and trumpeted at the herd.",
        ),
        "car": (
            "She put the suitcases into the trunk of the car.",
            "The spare tyre is in the trunk under the mat.",
            "He slammed the trunk shut and drove away.",
            "The police found the stolen money in the trunk of a taxi.",
            "Three shopping bags still fit in the trunk.",
        ),
    },
    "palm": {
        "tree": (
            "A palm grows beside the beach and gives some shade.",
            "Coconuts fell from the tall palm in the storm.",
            "The leaves of the palm were used to cover the hut.",
            "Behind the hotel stood a date palm and two cactuses.",
            "The oasis had a well and a single palm.",
        ),
        "hand": (
            "He held the coin in the palm of his hand.",
            "The fortune teller read the lines of her palm.",
            "She wrote the number on her palm with a pen.",
            "The boy slapped the table with his open palm.",
            "A splinter had gone deep into my palm.",
        ),
    },
    "pitcher": {
        "player": (
            "The pitcher threw three strikes in a row.",
            "Their best pitcher hurt his shoulder before the season.",
            "The coach replaced the pitcher in the seventh inning.",
            "A left-handed pitcher is hard for most batters to read.",
            "Then the pitcher wound up and hurled a fastball.",
        ),
        "jug": (
            "She filled the pitcher with lemonade and ice.",
            "A clay pitcher of wine stood on the table.",
            "He poured milk from the pitcher into his coffee.",
            "The waiter brought a pitcher of cold water and four glasses.",
            "The handle of the old pitcher broke off when she washed it.",
        ),
    },
}
