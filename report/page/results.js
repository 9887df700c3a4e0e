// The figures of an evaluation.

const shareFigures = ['em', 'f1', 'format', 'truncated'];

function drawResults(results) {
  if (!results) return;
  const groups = results.contexts.flatMap(result =>
    [{ context: result.context, name: 'all questions', ...result.overall },
      ...(result.groups || []).map(({ by, key, ...figures }) => ({ context: result.context, name: by + ' ' + key, ...figures }))]);
  const names = Object.keys(groups[0]).filter(name => name !== 'pass_at_k' && name !== 'name' && name !== 'context');
  const samples = Math.max(0, ...groups.map(group => group.pass_at_k?.length ?? 0));
  const passes = Array.from({ length: samples }, (_, k) => k).filter(k => (k & (k + 1)) === 0 || k === samples - 1);
  const head = ['context', 'questions', ...names.map(name => name.replaceAll('_', ' ')), ...passes.map(k => 'pass@' + (k + 1))];
  const row = group => make('tr', {}, make('td', {}, group.context), make('td', {}, group.name),
    ...names.map(name => make('td', {}, figure(group[name], shareFigures.includes(name) ? 'share' : ''))),
    ...passes.map(k => make('td', {}, figure(group.pass_at_k?.[k], 'share'))));
  append(byId('results'), [make('h2', {}, 'Results'), make('p', { class: 'muted' }, results.model.path),
    make('div', { class: 'scroll card' }, make('table', {}, make('thead', {}, make('tr', {}, ...head.map(name => make('th', {}, name)))),
      make('tbody', {}, ...groups.map(row))))]);
}
