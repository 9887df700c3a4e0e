// What stands above the trajectories: name, figures, settings, notes, warnings.

function drawOverview(overview) {
  byId('name').append(visible(overview.name));
  const trained = overview.steps.length ? `steps ${overview.steps[0]} to ${overview.steps.at(-1)}` : '';
  byId('dates').append(visible([trained, overview.dates].filter(Boolean).join(' · ')));
  byId('footer').append(visible(`Written by mempo-train, ${overview.written}.`));
  append(byId('headlines'), (overview.headlines || []).map(headline));
  drawNotes(overview.notes || []);
  drawSettings(overview);
  drawResults(overview.results);
  drawWarnings(overview.events || []);
  byId('to-curves').hidden = !overview.charts.length;
  byId('to-trajectories').hidden = !overview.blocks?.length;
}

function headline(h) {
  const values = h.from === h.to ? [make('b', {}, figure(h.last, h.unit))]
    : [make('span', {}, figure(h.first, h.unit)), ' → ', make('b', {}, figure(h.last, h.unit))];
  const steps = h.to === 0 ? '' : h.from === h.to ? `step ${h.to}` : `step ${h.from} → ${h.to}`;
  return make('div', { class: 'headline' }, make('div', { class: 'label' }, h.name), make('div', { class: 'values' }, ...values), make('div', { class: 'muted' }, steps));
}

function drawNotes(notes) {
  if (!notes.length) return;
  byId('notes').append(make('ul', { class: 'notice' }, ...notes.map(note => make('li', {}, note))));
}

function drawSettings(overview) {
  const pairs = (overview.settings || []).map(setting => make('div', {}, make('dt', {}, setting.name), make('dd', {}, setting.value)));
  if (pairs.length) byId('settings').append(make('dl', {}, ...pairs));
  if (overview.config) byId('settings').append(make('details', {}, make('summary', {}, 'All settings (config.toml)'), make('pre', {}, overview.config)));
}

function drawWarnings(events) {
  if (!events.length) return;
  const rows = events.map(e => make('tr', {},
    make('td', {}, e.step ?? ''), make('td', { class: 'level-' + (e.level === 'error' ? 'error' : 'warn') }, e.level),
    make('td', {}, e.msg, e.error ? ': ' + e.error : '')));
  append(byId('log'), [make('details', {}, make('summary', {}, 'Warnings of the log (' + events.length + ')'),
    make('div', { class: 'scroll' }, make('table', {}, make('thead', {}, make('tr', {}, make('th', {}, 'step'), make('th', {}, 'level'), make('th', {}, 'what'))),
      make('tbody', {}, ...rows))))]);
}
