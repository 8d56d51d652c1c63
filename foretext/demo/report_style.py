"""The look of the report page: one style sheet, light and dark by the reader's own setting."""

STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --ink: #1f2328; --soft: #636b74; --line: #dfdcd4; --card: #ffffff;
  --with: #2f6f4f; --without: #b9b4a7; --good: #1d7a46; --guess: #c2571a; --dot: #1f2328; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --ink: #e6e6e3; --soft: #9aa3ac; --line: #31363d;
  --card: #1d2126; --with: #58b084; --without: #5b626b; --good: #6bd39a; --guess: #f0955a; --dot: #f4f4f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 30px; line-height: 1.25; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 48px 0 14px; }
h3 { font-size: 14px; margin: 0 0 8px; color: var(--soft); font-weight: 600; }
.lead { font-size: 18px; color: var(--soft); margin: 0; }
.small, .legend { font-size: 13px; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 10px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
thead th { font-size: 13px; font-weight: 500; color: var(--soft); }
tbody th { font-weight: 600; }
tbody th small { display: block; font-weight: 400; color: var(--soft); white-space: normal; line-height: 1.35; }
td.main { font-weight: 600; }
td.good { color: var(--good); font-weight: 600; }
td.unclear { color: var(--guess); }
table.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table.facts th { width: 34%; font-weight: 500; color: var(--soft); white-space: normal; }
svg { width: 100%; height: auto; margin-top: 16px; font-size: 13px; }
svg text { fill: var(--ink); }
svg text.tick { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--line); }
svg rect.with { fill: var(--with); }
svg rect.without { fill: var(--without); }
svg .dot { fill: var(--dot); stroke: var(--page); }
svg .guess { stroke: var(--guess); stroke-width: 2; stroke-dasharray: 3 2; }
svg polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg polyline.train { stroke: var(--without); }
svg polyline.valid { stroke: var(--with); stroke-width: 2.5; }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 6px 0 12px;
  vertical-align: -1px; }
.swatch:first-child { margin-left: 0; }
.swatch.with { background: var(--with); }
.swatch.without { background: var(--without); }
.swatch.guess { background: var(--guess); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  font-size: 14px; overflow-wrap: anywhere; }
.card dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 6px 12px; }
.card dt { color: var(--soft); }
.card dd { margin: 0; }
.card dd.label { font-weight: 700; color: var(--with); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px; font-size: 14px;
  line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; }
.prompt { font-weight: 700; color: var(--with); }
.notes { padding-left: 20px; }
"""
