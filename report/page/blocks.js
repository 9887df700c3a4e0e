// Trajectories lie in the page packed, a block for each step, and are unpacked when asked for.

const blocks = { list: [], open: new Map() };
const openAtMost = 8;

// load unpacks a block. The newest few stay open.
function load(k) {
  if (!blocks.open.has(k)) {
    if (blocks.open.size >= openAtMost) blocks.open.delete(blocks.open.keys().next().value);
    const opening = unpack(byId('block-' + k).textContent).catch(error => {
      blocks.open.delete(k);
      throw error;
    });
    blocks.open.set(k, opening);
  }
  return blocks.open.get(k);
}

async function unpack(packed) {
  const data = Uint8Array.from(atob(packed), character => character.charCodeAt(0));
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

// blockName is what a block is called in a list.
function blockName(block) {
  const name = block.step > 0 ? 'step ' + block.step : '';
  const rest = block.name.replace(/^step_\d+_?/, '');
  return [name, rest].filter(Boolean).join(' ') || block.name;
}

// membersOf are the trajectories of one question of a block.
function membersOf(block, question) {
  return block.trajectories.filter(t => t.question === question);
}
