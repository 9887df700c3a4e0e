package eval

import (
	"fmt"

	"github.com/mempo-train/mempo-train/rollout"
)

// Figures sum up how questions were answered. Means are over questions, each of which counts as the
// mean over its trajectories that did not fail; a question without one has no part in them. The mean
// of nothing is null.
type Figures struct {
	N            int            `json:"n"`            // questions
	Trajectories int            `json:"trajectories"` // of these questions
	Failed       int            `json:"failed"`       // trajectories that a tool, a deadline or the engine ended
	EM           rollout.Number `json:"em"`           // exact match, mean over the objectives of a question
	EMSum        rollout.Number `json:"em_sum"`       // exact match, sum over the objectives of a question
	F1           rollout.Number `json:"f1"`           // token F1, mean over the objectives of a question
	Format       rollout.Number `json:"format"`       // share of the trajectories that keep the format
	Turns        rollout.Number `json:"turns"`        // of a trajectory
	ToolCalls    rollout.Number `json:"tool_calls"`   // of a trajectory
	TotalTokens  rollout.Number `json:"total_tokens"` // of a trajectory: context and output of each turn, summed over its turns
	PeakTokens   rollout.Number `json:"peak_tokens"`  // of a trajectory: most tokens of context and output in one turn
	Truncated    rollout.Number `json:"truncated"`    // share of the trajectories that a limit cut
	// Score is the mean of the scores of reward.command; nil without one.
	Score *rollout.Number `json:"score,omitempty"`
	// PassAtK holds at place k − 1 the chance that of k samples one gets every objective right; it is
	// nil for one sample. A question with fewer than k valid trajectories has no part in it.
	PassAtK []rollout.Number `json:"pass_at_k,omitempty"`
}

// measure is a mean among Figures.
type measure struct {
	name string // as in JSON
	form string // for people
	of   func(*Answer) float64
	in   func(*Figures) *rollout.Number
}

// Forms in which people read figures.
const (
	asShare  = "%.3f"
	asCount  = "%.2f"
	asTokens = "%.0f"
)

// measures lists the means in the order of tables.
var measures = []measure{
	{"em", asShare, func(a *Answer) float64 { return float64(a.EM) }, func(f *Figures) *rollout.Number { return &f.EM }},
	{"em_sum", asShare, func(a *Answer) float64 { return float64(a.EMSum) }, func(f *Figures) *rollout.Number { return &f.EMSum }},
	{"f1", asShare, func(a *Answer) float64 { return float64(a.F1) }, func(f *Figures) *rollout.Number { return &f.F1 }},
	{"format", asShare, func(a *Answer) float64 { return boolean(a.FormatOK) }, func(f *Figures) *rollout.Number { return &f.Format }},
	{"turns", asCount, func(a *Answer) float64 { return float64(a.Turns) }, func(f *Figures) *rollout.Number { return &f.Turns }},
	{"tool_calls", asCount, func(a *Answer) float64 { return float64(a.ToolCalls) }, func(f *Figures) *rollout.Number { return &f.ToolCalls }},
	{"total_tokens", asTokens, func(a *Answer) float64 { return float64(a.TotalTokens) }, func(f *Figures) *rollout.Number { return &f.TotalTokens }},
	{"peak_tokens", asTokens, func(a *Answer) float64 { return float64(a.PeakTokens) }, func(f *Figures) *rollout.Number { return &f.PeakTokens }},
	{"truncated", asShare, func(a *Answer) float64 { return boolean(a.Truncated) }, func(f *Figures) *rollout.Number { return &f.Truncated }},
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Figure is one of Figures by its name.
type Figure struct {
	Name  string // as in JSON; of a list, one name for each place, such as pass_at_2
	Value float64
	form  string
}

// List gives the figures in the order of tables.
func (f *Figures) List() []Figure {
	list := []Figure{{"n", float64(f.N), asTokens}}
	for _, m := range measures {
		list = append(list, Figure{m.name, float64(*m.in(f)), m.form})
	}
	if f.Score != nil {
		list = append(list, Figure{"score", float64(*f.Score), asShare})
	}
	for k, pass := range f.PassAtK {
		list = append(list, Figure{fmt.Sprintf("pass_at_%d", k+1), float64(pass), asShare})
	}
	return append(list, Figure{"failed", float64(f.Failed), asTokens})
}

// summarise sums up answers, which each question has the same number of, one behind the other.
func summarise(answers []Answer, samples int) Figures {
	f := Figures{N: len(answers) / samples, Trajectories: len(answers)}
	if samples > 1 {
		f.PassAtK = make([]rollout.Number, samples)
	}
	measured := make([]int, samples+1) // questions with so many valid trajectories or more
	for first := 0; first < len(answers); first += samples {
		question, valid, right := summariseQuestion(answers[first : first+samples])
		f.Failed += samples - valid
		for k := range valid + 1 {
			measured[k]++
		}
		for _, m := range measures {
			*m.in(&f) += *m.in(&question)
		}
		for k := range f.PassAtK[:min(valid, len(f.PassAtK))] {
			f.PassAtK[k] += rollout.Number(passAt(k+1, valid, right))
		}
	}
	for _, m := range measures {
		*m.in(&f) /= rollout.Number(measured[1]) // NaN of nothing
	}
	f.Score = meanScore(answers, samples)
	for k := range f.PassAtK {
		f.PassAtK[k] /= rollout.Number(measured[k+1])
	}
	return f
}

// meanScore is the mean over questions of the mean score of their answers; nil where none has a score.
func meanScore(answers []Answer, samples int) *rollout.Number {
	var sum, questions rollout.Number
	for first := 0; first < len(answers); first += samples {
		var total, scored rollout.Number
		for _, answer := range answers[first : first+samples] {
			if answer.Score != nil {
				total += *answer.Score
				scored++
			}
		}
		if scored > 0 {
			sum += total / scored
			questions++
		}
	}
	if questions == 0 {
		return nil
	}
	mean := sum / questions
	return &mean
}

// summariseQuestion gives the means over the valid answers to one question, how many those are, and
// how many of them get every objective right. Without any, all is 0.
func summariseQuestion(answers []Answer) (means Figures, valid, right int) {
	for k := range answers {
		answer := &answers[k]
		if answer.Stop.Failed() {
			continue
		}
		valid++
		if answer.EM == 1 {
			right++
		}
		for _, m := range measures {
			*m.in(&means) += rollout.Number(m.of(answer))
		}
	}
	for _, m := range measures {
		*m.in(&means) /= rollout.Number(max(1, valid))
	}
	return means, valid, right
}

// passAt estimates without bias the chance that of k samples one is right, from n samples of which
// right are: 1 − C(n − right, k) / C(n, k) (Chen et al., 2021, arXiv:2107.03374).
func passAt(k, n, right int) float64 {
	allWrong := 1.0
	for i := n - right + 1; i <= n; i++ {
		allWrong *= max(0, 1-float64(k)/float64(i))
	}
	return 1 - allWrong
}
