package trainer

import (
	"math/rand/v2"
	"slices"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/rollout"
)

// trainedRow is one sequence of the update, with everything that belongs to it: a whole trajectory,
// or in limited context one turn of it.
type trainedRow struct {
	group, member int
	ids           []int32
	positions     []int32   // of the trained tokens in ids
	response      []int     // of the same tokens in the trajectory's response
	sampled       []float32 // log-probs seen when sampling
}

// Rows are what may be trained on.
type Rows struct {
	questions int // of the step
	all       []trainedRow
}

// rows lists the sequences that have a token to be trained. Questions that are left out whatever
// their memories are worth have none, so that nothing is scored for them.
func (t *Trainer) rows(graded []Graded) (*Rows, error) {
	rows := &Rows{questions: len(graded)}
	for g, group := range graded {
		scores, failed := group.outcomes()
		plain, err := advantage.Compute(scores, nil, failed, t.Advantage)
		if err != nil {
			return nil, err
		}
		if plain.LeftOut && (plain.Valid < t.Advantage.MinGroup || t.Reward.MemoryReward == "off") {
			continue
		}
		for i, trajectory := range group.Trajectories {
			for _, row := range trainedRows(trajectory, t.mask(trajectory)) {
				row.group, row.member = g, i
				rows.all = append(rows.all, row)
			}
		}
	}
	return rows, nil
}

// trainedRows are the sequences of a trajectory that have a trained token; a failed trajectory has
// none. mask is aligned with the response.
func trainedRows(t *rollout.Trajectory, mask []bool) []trainedRow {
	var rows []trainedRow
	for _, s := range sequences(t) {
		row := trainedRow{ids: slices.Concat(s.context, t.ResponseIDs[s.Start:s.End])}
		for k := s.Start; k < s.End; k++ {
			if mask[k] {
				row.positions = append(row.positions, int32(len(s.context)+k-s.Start))
				row.response = append(row.response, k)
				row.sampled = append(row.sampled, t.LogProbs[k])
			}
		}
		if len(row.positions) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// sequence is a stretch of a response behind what the model was conditioned on when it wrote it.
type sequence struct {
	context []int32
	rollout.Span
}

// sequences lists what goes through the model: the whole trajectory once, or in limited context
// each turn behind its own context.
func sequences(t *rollout.Trajectory) []sequence {
	if len(t.Turns) == 0 || t.Turns[0].ContextIDs == nil {
		return []sequence{{t.PromptIDs, rollout.Span{End: len(t.ResponseIDs)}}}
	}
	var all []sequence
	for _, turn := range t.Turns {
		all = append(all, sequence{turn.ContextIDs, turn.Tokens})
	}
	return all
}

// Plan says which rows meet in which mini-batch (one optimiser step) of which epoch.
type Plan struct {
	rows       []trainedRow
	advantages [][]float32 // of each row, aligned with its positions
	epochs     [][]minibatch
}

// minibatch lists rows by index.
type minibatch []int

// trained lists the rows of the plan: those of questions that are not left out.
func (p *Plan) trained() []int {
	var all []int
	for _, mini := range p.epochs[0] {
		all = append(all, mini...)
	}
	slices.Sort(all)
	return all
}

// plan draws the mini-batches of the update.
func (t *Trainer) plan(step int, rows *Rows, advantages []GroupAdvantages) *Plan {
	plan := &Plan{rows: rows.all}
	for _, row := range rows.all {
		of := make([]float32, len(row.response))
		for k, at := range row.response {
			of[k] = advantages[row.group].Tokens[row.member][at]
		}
		plan.advantages = append(plan.advantages, of)
	}
	leftOut := func(g int) bool { return advantages[g].LeftOut }
	for epoch := range t.Update.PPOEpochs {
		plan.epochs = append(plan.epochs, t.minibatches(step, epoch, rows, leftOut))
	}
	return plan
}

// shuffleStream keeps the shuffles of mini-batches apart from other uses of the run's seed.
const shuffleStream = 0x6d696e69

// minibatches of an epoch hold whole questions, shuffled by the run's seed.
func (t *Trainer) minibatches(step, epoch int, rows *Rows, leftOut func(group int) bool) []minibatch {
	byQuestion := make([][]int, rows.questions)
	for k, row := range rows.all {
		if !leftOut(row.group) {
			byQuestion[row.group] = append(byQuestion[row.group], k)
		}
	}
	random := rand.New(rand.NewPCG(t.Rollout.Seed^shuffleStream, uint64(step)<<16|uint64(epoch)))
	return t.cut(byQuestion, random.Perm(rows.questions))
}

// cut makes the mini-batches of one epoch from questions in the given order.
func (t *Trainer) cut(byQuestion [][]int, order []int) []minibatch {
	var all []minibatch
	for at := 0; at < len(order); at += t.Update.QuestionsPerMinibatch {
		var chosen minibatch
		for _, g := range order[at:min(at+t.Update.QuestionsPerMinibatch, len(order))] {
			chosen = append(chosen, byQuestion[g]...)
		}
		if len(chosen) > 0 { // else every question of it is left out: no optimiser step
			all = append(all, chosen)
		}
	}
	return all
}
