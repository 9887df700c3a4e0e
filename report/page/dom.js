// Everything that a run wrote goes into the page through these functions: as text, never as markup.

const byId = id => document.getElementById(id);

// Characters that would not be seen, or that would turn round the text beside them.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

// visible is a text with a sign for each character that would not be seen.
function visible(text) {
  return String(text).replace(unseen, character => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return '\u2421';
    return '⟨U+' + code.toString(16).toUpperCase().padStart(4, '0') + '⟩';
  });
}

// append adds children: nodes as they are, null and false not at all, anything else as text.
function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(child));
  }
  return node;
}

// make makes an element. Attributes are text too; "on…" is a handler.
function make(tag, attributes, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : visible(value));
  }
  return append(node, children);
}

// draw makes an element of SVG.
function draw(tag, attributes, ...children) {
  return dressed(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

// replace puts children in place of what an element has.
function replace(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

const minus = '\u2212';

// figure writes a number in few digits, null as a dash.
function figure(value, unit) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  let text;
  if (unit === 'bytes') text = bytes(size);
  else if (unit === 's') text = duration(size);
  else if (unit === 'share') text = size.toFixed(size > 0 && size < 0.001 ? 5 : 3);
  else if (size >= 1e9 || (size > 0 && size < 1e-4)) text = size.toExponential(2);
  else if (size >= 1e4) text = Math.round(size).toLocaleString('en-US');
  else if (size >= 100) text = size.toFixed(0);
  else text = String(Number(size.toPrecision(3)));
  return (value < 0 ? minus : '') + text;
}

function duration(seconds) {
  if (seconds > 0 && seconds < 0.001) return '< 1 ms';
  return seconds < 1 ? Number((seconds * 1000).toPrecision(3)) + ' ms' : Number(seconds.toPrecision(3)) + ' s';
}

function bytes(size) {
  for (const unit of ['B', 'KiB', 'MiB']) {
    if (size < 1024) return size.toFixed(size < 10 && unit !== 'B' ? 1 : 0) + ' ' + unit;
    size /= 1024;
  }
  return size.toFixed(1) + ' GiB';
}

// signed writes a number with its sign, to so many decimals.
function signed(value, decimals = 3) {
  if (value === null || value === undefined) return '–';
  const rounded = Number(value.toFixed(decimals));
  return (rounded > 0 ? '+' : rounded < 0 ? minus : '') + String(Math.abs(rounded));
}

function counted(n, noun, plural = noun + 's') {
  return n.toLocaleString('en-US') + ' ' + (n === 1 ? noun : plural);
}
