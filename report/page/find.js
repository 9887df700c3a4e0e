// Finding trajectories by text, score and stop reason.

let searches = 0; // only the newest goes on

function prepareFind() {
  const form = byId('find');
  form.onsubmit = event => {
    event.preventDefault();
    find();
  };
  form.onreset = () => {
    searches++;
    byId('find-clear').hidden = byId('found').hidden = true;
  };
  for (const name of ['find-score', 'find-stop', 'find-where']) byId(name).onchange = find;
  const reasons = ['answered', 'max_turns', 'max_response', 'context_full', 'no_action', 'failed_tool', 'failed_deadline', 'failed_engine'];
  append(byId('find-stop'), reasons.map(reason => make('option', { value: reason }, reason)));
}

const ofScore = {
  right: score => score !== null && score >= 1,
  part: score => score !== null && score > 0 && score < 1,
  wrong: score => score !== null && score <= 0,
  none: score => score === null,
};

// wholeText is everything that can be read of a trajectory.
function wholeText(t, question) {
  const texts = [question.text, question.id, t.answer ?? ''];
  for (const turn of t.turns) texts.push(turn.parts.map(part => part.texts.join('')).join(''));
  return texts.join('\n').toLowerCase();
}

async function find() {
  const mine = ++searches;
  const text = byId('find-text').value.toLowerCase(), stop = byId('find-stop').value;
  const scored = ofScore[byId('find-score').value] ?? (() => true);
  const where = byId('find-where').value === 'all' ? blocks.list.map((_, k) => k) : [chosen.block];
  const found = [];
  byId('found').hidden = byId('find-clear').hidden = false;
  for (const [done, k] of where.entries()) {
    replace(byId('found'), make('p', { class: 'muted' }, `Looked at ${done} of ${counted(where.length, 'step')} …`));
    let block;
    try {
      block = await load(k);
    } catch {
      continue; // said when the step is opened
    }
    await new Promise(requestAnimationFrame); // so that the page stays alive
    if (mine !== searches) return;
    const members = block.questions.map(() => 0);
    for (const t of block.trajectories) {
      const member = members[t.question]++;
      const fits = scored(t.score) && (!stop || t.stop === stop) && (!text || wholeText(t, block.questions[t.question]).includes(text));
      if (fits) found.push({ k, member, question: t.question, text: block.questions[t.question].text, answer: t.answer, score: t.score, stop: t.stop });
    }
  }
  const list = make('div', { class: 'hits' });
  bounded(list, found, hit => make('button', { type: 'button', class: 'hit', onclick: () => visit(hit.k, hit.question, hit.member).then(showTrajectory) },
    make('span', { class: 'muted' }, blockName(blocks.list[hit.k])), dot(hit), make('span', { class: 'hit-text', dir: 'auto' }, hit.text),
    make('span', { class: 'hit-answer', dir: 'auto' }, hit.answer ?? hit.stop)), 100);
  replace(byId('found'), make('p', {}, make('b', {}, found.length.toLocaleString('en-US')), ' found'), list);
}
