// How a page looks, for tests: contrasts() and collisions() list what a person could not read.

const pixels = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const known = new Map();

// rgba is a colour in any notation as four numbers, the last from 0 to 1.
function rgba(colour) {
  if (!known.has(colour)) {
    pixels.clearRect(0, 0, 1, 1);
    pixels.fillStyle = colour;
    pixels.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pixels.getImageData(0, 0, 1, 1).data;
    known.set(colour, [r, g, b, a / 255]);
  }
  return known.get(colour);
}

function over(top, bottom) {
  return [0, 1, 2].map(k => top[k] * top[3] + bottom[k] * (1 - top[3])).concat(1);
}

// backgrounds are the colours that may lie behind the text of an element: those of it and of what
// is around it, and each colour of a pattern.
function backgrounds(element) {
  if (!element) return [[255, 255, 255, 1]];
  const style = getComputedStyle(element), own = rgba(style.backgroundColor);
  let behind = own[3] === 1 ? [own] : backgrounds(element.parentElement).map(below => over(own, below));
  const pattern = style.backgroundImage.match(/(?:rgba?|color|oklab|oklch)\([^()]*\)/g) || [];
  return behind.concat(...pattern.map(colour => behind.map(below => over(rgba(colour), below))));
}

function luminance(colour) {
  const [r, g, b] = colour.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// textNodes are the texts that are on the page, closed details left out.
function textNodes() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), nodes = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.data.trim() && !node.parentElement.closest('script, style, noscript, option') && node.parentElement.checkVisibility({ visibilityProperty: true })) nodes.push(node);
  }
  return nodes;
}

function shown(node) {
  const element = node.parentElement;
  return `${element.tagName} .${element.getAttribute('class')} ${JSON.stringify(node.data.slice(0, 40))}`;
}

// contrasts lists the texts whose contrast is below least, by the formula of WCAG 2. What cannot be
// used now may be pale.
function contrasts(least) {
  const bad = new Set();
  for (const node of textNodes()) {
    const element = node.parentElement;
    if (element.closest(':disabled')) continue;
    const style = getComputedStyle(element), colour = rgba(element.closest('svg') ? style.fill : style.color);
    for (const behind of backgrounds(element)) {
      const [a, b] = [luminance(over(colour, behind)), luminance(behind)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < least) bad.add(`${ratio.toFixed(2)}: ${shown(node)}`);
    }
  }
  return [...bad];
}

// inSight is a rectangle less what the elements around it cut off.
function inSight(rectangle, element) {
  let { left, top, right, bottom } = rectangle;
  for (; element && element !== document.body; element = element.parentElement) {
    const style = getComputedStyle(element);
    if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
    const box = element.getBoundingClientRect();
    left = Math.max(left, box.left), right = Math.min(right, box.right);
    top = Math.max(top, box.top), bottom = Math.min(bottom, box.bottom);
  }
  return { left, top, right, bottom };
}

// collisions lists texts that lie on each other, and those that stick out of the window.
function collisions() {
  window.scrollTo(0, 0);
  const boxes = [], bad = new Set();
  for (const node of textNodes()) {
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rectangle of node.parentElement.closest('svg') ? [node.parentElement.getBoundingClientRect()] : range.getClientRects()) {
      const box = inSight(rectangle, node.parentElement);
      if (box.right - box.left < 1 || box.bottom - box.top < 1) continue;
      if (box.left < -1 || box.right > document.documentElement.clientWidth + 1) bad.add('sticks out: ' + shown(node));
      boxes.push({ ...box, node });
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom - 3; j++) {
      const a = boxes[i], b = boxes[j];
      if (a.node !== b.node && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - b.top > 3) {
        bad.add(`${shown(a.node)} lies on ${shown(b.node)}`);
      }
    }
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) bad.add('the page is wider than the window');
  return [...bad];
}
