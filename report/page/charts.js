// Curves, as SVG. Pointing at a step in one chart shows its values in all of them.

const frame = { width: 400, height: 190, left: 52, right: 8, top: 8, bottom: 22 };
const plot = { width: frame.width - frame.left - frame.right, height: frame.height - frame.top - frame.bottom };

// pointed are functions to call with the position of the step that is pointed at; null for none.
const pointed = [];

function drawCharts(overview) {
  const home = byId('curves');
  if (!overview.charts.length) return;
  home.append(make('h2', {}, 'Curves'));
  let section = null, grid = null;
  for (const chart of overview.charts) {
    if (chart.section !== section) {
      section = chart.section;
      grid = make('div', { class: 'charts' });
      home.append(section === 'More'
        ? make('details', {}, make('summary', {}, 'More figures'), grid)
        : make('div', {}, make('h3', {}, section), grid));
    }
    grid.append(chartFigure(chart, overview.steps));
  }
}

function chartFigure(chart, steps) {
  const scale = newScale(chart, steps);
  const values = chart.curves.map(() => make('b', {}));
  const at = make('span', { class: 'muted at' });
  const names = chart.curves.map((curve, k) =>
    make('span', { class: 'key' }, make('i', { class: 'swatch c' + k % 8 }), curve.name + ' ', values[k]));
  const rule = draw('line', { class: 'rule', y1: frame.top, y2: frame.top + plot.height, visibility: 'hidden' });
  const picture = draw('svg', { viewBox: `0 0 ${frame.width} ${frame.height}`, role: 'img', 'aria-label': chart.title },
    axes(scale, chart, steps), ...chart.curves.map((curve, k) => drawCurve(curve, k, scale)), rule);
  const show = position => {
    rule.setAttribute('visibility', position === null ? 'hidden' : 'visible');
    if (position !== null) {
      rule.setAttribute('x1', scale.x(position));
      rule.setAttribute('x2', scale.x(position));
    }
    replace(at, position === null ? 'last' : 'step ' + steps[position]);
    chart.curves.forEach((curve, k) => replace(values[k], figure(valueAt(curve, position), chart.unit)));
  };
  pointed.push(show);
  const point = event => {
    const box = picture.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * frame.width;
    let nearest = 0;
    for (let k = 1; k < steps.length; k++) if (Math.abs(scale.x(k) - x) < Math.abs(scale.x(nearest) - x)) nearest = k;
    for (const other of pointed) other(nearest);
  };
  picture.addEventListener('pointermove', point);
  picture.addEventListener('pointerdown', point);
  picture.addEventListener('pointerleave', () => { for (const other of pointed) other(null); });
  show(null);
  return make('figure', { class: 'chart' }, make('figcaption', {}, make('strong', {}, chart.title), at), make('div', { class: 'keys' }, ...names), picture);
}

// valueAt is a curve's value at a position, or its last one.
function valueAt(curve, position) {
  if (position === null) {
    for (let k = curve.values.length - 1; k >= 0; k--) if (curve.values[k] !== null) return curve.values[k];
    return null;
  }
  const k = curve.at.indexOf(position);
  return k < 0 ? null : curve.values[k];
}

function newScale(chart, steps) {
  const all = chart.curves.flatMap(curve => curve.values).filter(value => value !== null);
  let low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  if (chart.unit === 'share') {
    low = Math.min(low, 0);
    high = high > 0.15 ? Math.max(high, 1) : high * 1.1 || 1;
  }
  if (low > 0 && (low < high / 2 || chart.unit === 'bytes')) low = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  else if (chart.unit !== 'share') {
    const room = (high - low) / 20;
    high += room;
    if (low !== 0) low -= room;
  }
  const length = steps.at(-1) - steps[0];
  const across = step => frame.left + (length > 0 ? (step - steps[0]) / length : 0.5) * plot.width;
  return {
    low, high, across,
    x: position => across(steps[position]),
    y: value => frame.top + (1 - (value - low) / (high - low)) * plot.height,
  };
}

// ticks are round numbers from low to high, about so many of them.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const stride = power * [1, 2, 2.5, 5, 10].find(m => m * power >= raw * 0.999);
  const list = [];
  for (let k = Math.ceil(low / stride - 1e-9); k * stride <= high + stride * 1e-9; k++) list.push(Number((k * stride).toPrecision(12)));
  return list;
}

function axes(scale, chart, steps) {
  const group = draw('g', { class: 'axes' });
  const [factor, name] = chart.unit !== 'bytes' ? [1, ''] : scale.high >= 2 ** 30 ? [2 ** 30, ' GiB'] : [2 ** 20, ' MiB'];
  for (const tick of ticks(scale.low / factor, scale.high / factor, 4)) {
    const y = scale.y(tick * factor);
    group.append(draw('line', { class: tick === 0 ? 'zero' : 'grid', x1: frame.left, x2: frame.left + plot.width, y1: y, y2: y }),
      draw('text', { x: frame.left - 5, y: y + 3.5, 'text-anchor': 'end' }, tickText(tick) + name));
  }
  const marks = steps.length > 1 ? ticks(steps[0], steps.at(-1), 6).filter(Number.isInteger) : steps;
  for (const step of marks) {
    const x = scale.across(step), right = frame.left + plot.width;
    group.append(draw('text', { x: Math.min(x, right), y: frame.height - 6, 'text-anchor': x > right - 12 ? 'end' : 'middle' }, step));
  }
  return group;
}

function tickText(value) {
  const size = Math.abs(value);
  const text = size >= 1e6 ? size / 1e6 + 'M' : size >= 1e3 ? size / 1e3 + 'k' : size > 0 && size < 1e-3 ? size.toExponential() : String(size);
  return (value < 0 ? minus : '') + text;
}

// drawCurve draws a line that breaks where a value could not be measured, and a dot for each value
// that stands alone or is one of few.
function drawCurve(curve, number, scale) {
  const group = draw('g', { class: 'curve c' + number % 8 });
  const few = curve.values.length <= 12;
  let path = '', length = 0;
  curve.values.forEach((value, k) => {
    if (value === null) {
      length = 0;
      return;
    }
    const x = scale.x(curve.at[k]).toFixed(1), y = scale.y(value).toFixed(1);
    path += (length === 0 ? 'M' : 'L') + x + ' ' + y;
    length++;
    const next = curve.values[k + 1];
    if (few || (length === 1 && (next === null || next === undefined))) group.append(draw('circle', { cx: x, cy: y, r: 2.5 }));
  });
  group.prepend(draw('path', { d: path }));
  return group;
}
