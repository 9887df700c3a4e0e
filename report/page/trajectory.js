// One trajectory, turn by turn, token by token.

const levels = 6;

// tint is the class of an advantage: p1 to p6 above zero, m1 to m6 below, none for zero. scale is
// the advantage that gets the strongest.
function tint(advantage, scale) {
  if (advantage === null || advantage === undefined || advantage === 0) return '';
  const level = Math.min(levels, Math.max(1, Math.ceil(Math.abs(advantage) / scale * levels - 1e-9)));
  return (advantage > 0 ? 'p' : 'm') + level;
}

// eachRun calls take with each value of a list [value, how often, …], and where its run begins.
function eachRun(runs, take) {
  let at = 0;
  for (let k = 0; k < (runs || []).length; k += 2) {
    take(runs[k], at, runs[k + 1]);
    at += runs[k + 1];
  }
}

// strip is a whole trajectory as a bar of its advantages; what is not trained on is pale.
function strip(trajectory, scale) {
  const bar = make('span', { class: 'strip', 'aria-hidden': 'true' });
  const stops = [];
  eachRun(trajectory.strip, (advantage, at, times) => {
    const name = advantage === null ? 'masked' : tint(advantage, scale) || 'zero';
    stops.push(`var(--${name}) ${100 * at / trajectory.tokens}% ${100 * (at + times) / trajectory.tokens}%`);
  });
  if (stops.length) bar.style.backgroundImage = `linear-gradient(90deg, ${stops.join(', ')})`;
  return bar;
}

// drawLegend explains the tints, of which there are none where nothing is trained on.
function drawLegend(scale, plain) {
  const steps = [];
  for (let level = levels; level > 0; level--) steps.push(make('i', { class: 'm' + level }));
  steps.push(make('i', { class: 'zero' }));
  for (let level = 1; level <= levels; level++) steps.push(make('i', { class: 'p' + level }));
  return make('div', { class: 'legend' },
    plain ? null : make('span', { class: 'scale' }, '≤ ' + signed(-scale), make('span', { class: 'tints' }, ...steps), '≥ ' + signed(scale), ' advantage'),
    make('span', { class: 'masked' }, plain ? 'not the model\u2019s' : 'not trained'),
    make('span', { class: 'token-info muted', id: 'token-info' }, 'Point at a token for its figures.'));
}

function drawTrajectory(home, block, trajectory, scale) {
  const question = block.questions[trajectory.question];
  replace(home,
    drawFacts(trajectory, question),
    drawLegend(scale, trajectory.plain),
    make('details', { class: 'prompt' }, make('summary', {}, `Prompt (${counted(question.prompt_tokens, 'token')})`),
      make('div', { class: 'text masked', dir: 'auto' }, question.prompt)),
    ...trajectory.turns.map((turn, k) => drawTurn(turn, k, scale)),
    trajectory.turns.length ? null : make('p', { class: 'muted' }, 'It has no turn.'));
  const info = event => {
    const token = event.target.closest?.('.token');
    if (token) replace(byId('token-info'), tokenInfo(token.figures, trajectory.plain));
  };
  home.onpointerover = info;
  home.onclick = info;
}

function tokenInfo({ text, advantage, logProb }, plain) {
  const shown = text.trim() === '' ? JSON.stringify(text) : '“' + text + '”';
  if (advantage === null && logProb === null) return shown + ' not trained';
  const parts = [shown];
  if (advantage !== null && !plain) parts.push('advantage ' + signed(advantage));
  if (logProb !== null) parts.push(`log p ${signed(logProb)} (${(100 * Math.exp(logProb)).toFixed(1)} %)`);
  return parts.join(' · ');
}

function fact(name, value, className) {
  return value === null ? null : make('span', { class: 'fact' + (className ? ' ' + className : '') }, make('span', { class: 'muted' }, name + ' '), value);
}

function drawFacts(t, question) {
  const rewards = t.rewards || {};
  const gold = (question.golden || []).map(names => (names || []).join(' or ')).join('; ');
  return make('div', { class: 'facts' },
    make('div', { class: 'answers' },
      make('div', {}, make('span', { class: 'muted' }, 'answer '), make('b', { dir: 'auto' }, t.answer ?? 'none')),
      make('div', {}, make('span', { class: 'muted' }, 'golden '), make('b', { dir: 'auto' }, gold))),
    make('div', { class: 'chips' },
      fact('score', figure(t.score)),
      fact('exact match', 'em' in rewards ? figure(rewards.em) : null),
      fact('F1', 'f1' in rewards ? figure(rewards.f1) : null),
      fact('format', 'format' in rewards ? (rewards.format === 1 ? 'kept' : 'broken') : null, rewards.format === 0 ? 'bad' : ''),
      fact('outcome advantage', 'outcome_advantage' in rewards ? signed(rewards.outcome_advantage) : null),
      fact('end', t.stop + (t.detail ? ': ' + t.detail : ''), t.stop === 'answered' ? '' : 'bad'),
      fact('tokens', `${t.tokens.toLocaleString('en-US')}, ${t.sampled.toLocaleString('en-US')} ${t.plain ? 'of the model' : 'trained'}`),
      fact('time', figure(t.seconds, 's'))));
}

function drawTurn(turn, k, scale) {
  const heads = [make('b', {}, 'Turn ' + (k + 1)), make('span', { class: 'muted' }, counted(turn.tokens, 'token') + ', ended by ' + turn.stop)];
  if (turn.format_error) heads.push(make('span', { class: 'fact bad' }, turn.format_error));
  if (turn.tool_error) heads.push(make('span', { class: 'fact bad' }, turn.tool_error));
  if (turn.result_cut) heads.push(make('span', { class: 'fact' }, 'result cut'));
  if (turn.memory_cut) heads.push(make('span', { class: 'fact' }, 'memory cut for the next turn'));
  if (turn.tool_s >= 0.001) heads.push(make('span', { class: 'muted' }, 'tool ' + figure(turn.tool_s, 's')));
  const marked = turn.parts.findIndex(part => part.kind === 'memory');
  return make('article', { class: 'turn' }, make('div', { class: 'turn-head' }, ...heads), drawContext(turn),
    ...turn.parts.map((part, n) => drawPart(part, n === marked ? turn : null, scale)));
}

const partNames = { memory: 'memory', thought: 'thought', query: 'query', address: 'address', answer: 'answer', other: 'outside', glue: 'template', result: 'result' };

function drawPart(part, turn, scale) {
  const masked = part.kind === 'glue' || part.kind === 'result';
  const text = make('div', { class: 'text' + (masked ? ' masked' : ''), dir: 'auto' });
  if (part.kind === 'glue') text.append(...part.texts.map(piece => visible(piece).replaceAll('\n', '⏎')));
  else if (masked) text.append(...part.texts.map(visible));
  else drawTokens(text, part, scale);
  return make('div', { class: 'part ' + part.kind }, make('div', { class: 'part-name' }, partNames[part.kind] || part.kind),
    make('div', { class: 'part-body' }, text, turn && drawMemoryFigures(turn)));
}

function drawTokens(home, part, scale) {
  eachRun(part.advantages, (advantage, at, times) => {
    const className = advantage === null ? 'token masked' : 'token ' + tint(advantage, scale);
    for (let k = at; k < at + times; k++) {
      const text = part.texts[k];
      const token = make('span', { class: className + (text.trim() === '' && text.includes('\n') ? ' line' : '') }, text);
      token.figures = { text, advantage, logProb: part.logprobs?.[k] ?? null };
      home.append(token);
    }
  });
}

// drawMemoryFigures shows what a memory is worth: how likely the answer is behind it and behind the
// whole history.
function drawMemoryFigures(turn) {
  if (turn.memory_reward === undefined) return null;
  const bar = (name, value) => {
    const filled = make('i', {});
    filled.style.width = 100 * Math.min(Math.max(value ?? 0, 0), 1) + '%';
    return make('span', { class: 'probability' }, make('span', { class: 'muted' }, name), make('span', { class: 'bar' }, filled), make('b', {}, figure(value, 'share')));
  };
  return make('div', { class: 'memory-figures' },
    bar('P full', turn.p_full), bar('P mem', turn.p_mem),
    make('span', {}, make('span', { class: 'muted' }, 'difference '), make('b', {}, signed(turn.p_mem - turn.p_full))),
    make('span', {}, make('span', { class: 'muted' }, 'memory advantage '), make('b', {}, signed(turn.memory_advantage))));
}

// drawContext shows what a turn saw, where that is not all that stands above it.
function drawContext(turn) {
  if (!turn.context) return null;
  return make('details', { class: 'context' }, make('summary', {}, `What this turn saw (${counted(turn.context_tokens, 'token')})`),
    make('div', { class: 'text masked', dir: 'auto' }, turn.context));
}
