// Choosing a step, a question and a trajectory.

const chosen = { block: -1, question: -1, member: -1 };
let visits = 0; // calls of visit; only the newest draws

function drawBrowser(overview) {
  blocks.list = overview.blocks || [];
  if (!blocks.list.length) return;
  byId('trajectories').hidden = false;
  if (!('DecompressionStream' in window)) {
    replace(byId('browser'), make('p', { class: 'notice' }, 'This browser is too old to unpack the trajectories.'));
    return;
  }
  append(byId('step'), blocks.list.map((block, k) => make('option', { value: k }, blockName(block))));
  byId('step-range').max = blocks.list.length - 1;
  for (const name of ['step-before', 'step-after', 'step-range']) byId(name).hidden = blocks.list.length === 1;
  byId('step').onchange = event => visit(Number(event.target.value));
  byId('step-range').oninput = event => visit(Number(event.target.value));
  // From the step that was asked for last, which may still be opening.
  byId('step-before').onclick = () => visit(Number(byId('step').value) - 1);
  byId('step-after').onclick = () => visit(Number(byId('step').value) + 1);
  const [, name, question, member] = location.hash.split('/');
  const k = blocks.list.findIndex(block => encodeURIComponent(block.name) === name);
  if (k < 0) visit(blocks.list.length - 1);
  else visit(k, Number(question) || 0, Number(member) || 0);
}

// visit opens block k at a question, and a trajectory by its place among those of the question.
// Without a question it stays with the one that is open, if the block has it.
async function visit(k, question, member = 0) {
  if (k < 0 || k >= blocks.list.length) return;
  const mine = ++visits;
  byId('step').value = byId('step-range').value = k;
  byId('step-before').disabled = k === 0;
  byId('step-after').disabled = k === blocks.list.length - 1;
  const before = blocks.list[chosen.block]?.questions[chosen.question];
  let block;
  try {
    block = await load(k);
  } catch (error) {
    if (mine === visits) replace(byId('trajectory'), make('p', { class: 'notice' }, `${blockName(blocks.list[k])} cannot be unpacked: ${error}`));
    return;
  }
  if (mine !== visits) return;
  if (question === undefined) question = blocks.list[k].questions.indexOf(before);
  const other = k !== chosen.block;
  chosen.block = k;
  chosen.question = block.questions[question] ? question : 0;
  const members = membersOf(block, chosen.question);
  chosen.member = members[member] ? member : 0;
  if (other) drawStep(block);
  markQuestion();
  drawGroup(block, members);
  drawTrajectory(byId('trajectory'), block, members[chosen.member], scaleOf(k));
  remember();
}

// scaleOf is the advantage that gets the strongest tint in a step, in two digits.
function scaleOf(k) {
  return Number(blocks.list[k].scale.toPrecision(2));
}

function remember() {
  const place = ['#trajectories', encodeURIComponent(blocks.list[chosen.block].name), chosen.question, chosen.member].join('/');
  try {
    history.replaceState(null, '', place);
  } catch { /* some browsers keep the address of a file as it is */ }
}

// bounded adds the first elements that draw makes of the items, and a button for the next ones.
function bounded(home, items, draw, atMost = 200) {
  const more = from => {
    append(home, items.slice(from, from + atMost).map((item, k) => draw(item, from + k)));
    const left = items.length - from - atMost;
    if (left <= 0) return;
    const button = make('button', { type: 'button', class: 'more' }, left > atMost ? `Show ${atMost} more of ${left.toLocaleString('en-US')}` : `Show ${left} more`);
    button.onclick = () => {
      button.remove();
      more(from + atMost);
    };
    home.append(button);
  };
  more(0);
}

function drawStep(block) {
  const { count, score } = blocks.list[chosen.block];
  replace(byId('step-summary'), counted(count, 'trajectory', 'trajectories'),
    score === null ? '' : ` · mean score ${figure(score, 'share')}`);
  const byQuestion = block.questions.map(() => []);
  for (const t of block.trajectories) byQuestion[t.question].push(t);
  const home = byId('questions');
  home.replaceChildren();
  bounded(home, block.questions, (question, k) => make('button', { type: 'button', class: 'question', onclick: () => visit(chosen.block, k) },
    make('span', { class: 'question-text', dir: 'auto' }, question.text),
    make('span', { class: 'dots' }, ...byQuestion[k].slice(0, 64).map(dot)),
    make('span', { class: 'muted' }, meanScore(byQuestion[k]))));
}

function meanScore(trajectories) {
  const scores = trajectories.map(t => t.score).filter(score => score !== null);
  return scores.length ? 'mean score ' + figure(scores.reduce((a, b) => a + b, 0) / scores.length, 'share') : 'no score';
}

function dot(t) {
  const name = t.score === null ? 'none' : t.score >= 1 ? 'right' : t.score > 0 ? 'part' : 'wrong';
  return make('i', { class: 'dot ' + name });
}

function markQuestion() {
  byId('questions').querySelectorAll('.question').forEach((button, k) => {
    if (k === chosen.question) button.setAttribute('aria-current', 'true');
    else button.removeAttribute('aria-current');
  });
}

// drawGroup shows all trajectories of a question side by side.
function drawGroup(block, members) {
  const question = block.questions[chosen.question], scale = scaleOf(chosen.block);
  const rows = make('div', { class: 'members', role: 'list' });
  bounded(rows, members, (t, k) => drawMember(t, k, scale));
  const step = offset => make('button', { type: 'button', 'aria-label': offset < 0 ? 'Trajectory before' : 'Trajectory after',
    disabled: !members[chosen.member + offset], onclick: () => visit(chosen.block, chosen.question, chosen.member + offset).then(showTrajectory) }, offset < 0 ? '◀' : '▶');
  replace(byId('group'),
    make('h3', { dir: 'auto' }, question.text),
    make('p', { class: 'muted' }, 'question ' + question.id, drawOtherSteps(question)),
    make('div', { class: 'member head', 'aria-hidden': 'true' },
      ...['#', 'score', 'advantage', 'turns', 'tokens', 'end', 'memory rewards', 'answer', 'tokens by advantage'].map(name => make('span', {}, name))),
    rows,
    make('div', { class: 'turn-over' }, step(-1), make('b', {}, `Trajectory ${chosen.member + 1} of ${members.length}`), step(1)));
}

function drawMember(t, k, scale) {
  const advantage = t.rewards?.outcome_advantage ?? null;
  const rewards = t.turns.filter(turn => turn.memory_reward !== undefined).map(turn =>
    make('span', { class: 'reward ' + tint(turn.memory_advantage, scale) }, signed(turn.memory_reward, 2)));
  return make('button', { type: 'button', class: 'member', 'aria-current': k === chosen.member && 'true', onclick: () => visit(chosen.block, chosen.question, k).then(showTrajectory) },
    make('span', {}, k + 1),
    make('span', { class: 'score' }, dot(t), figure(t.score)),
    make('span', {}, make('span', { class: 'reward ' + tint(advantage, scale) }, signed(advantage, 2))),
    make('span', { 'data-name': 'turns' }, t.turns.length),
    make('span', { 'data-name': 'tokens' }, t.tokens.toLocaleString('en-US')),
    make('span', { class: t.stop === 'answered' ? '' : 'bad' }, t.stop),
    make('span', { class: 'rewards' }, ...(rewards.length ? rewards : ['–'])),
    make('span', { class: 'member-answer', dir: 'auto' }, t.answer ?? '–'),
    strip(t, scale));
}

// showTrajectory brings the trajectory into sight where the group fills the window.
function showTrajectory() {
  const head = document.querySelector('.turn-over');
  if (head && head.getBoundingClientRect().bottom > window.innerHeight * 0.7) head.scrollIntoView({ block: 'start' });
}

// drawOtherSteps links to the steps that ask the same question.
function drawOtherSteps(question) {
  const links = [];
  blocks.list.forEach((block, k) => {
    const at = block.questions.indexOf(question.id);
    if (at >= 0 && k !== chosen.block) links.push(make('button', { type: 'button', class: 'link', onclick: () => visit(k, at) }, blockName(block)));
  });
  if (!links.length) return null;
  const span = make('span', {}, ' · also in ');
  bounded(span, links, link => make('span', {}, link, ' '), 12);
  return span;
}
