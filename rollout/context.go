package rollout

// Context says what a turn is conditioned on.
type Context string

// Under Full, the zero value too, a turn sees everything before it. Under Limited it sees the
// prompt, the latest memory, the action before it and that action's result, and nothing older.
const (
	Full    Context = "full"
	Limited Context = "limited"
)

// ContextOf is what a turn, counted from 0, was conditioned on: the tokens before its first.
func (t *Trajectory) ContextOf(turn int) []int32 {
	if context := t.Turns[turn].ContextIDs; context != nil {
		return context
	}
	return t.FullIDs()[:len(t.PromptIDs)+t.Turns[turn].Tokens.Start]
}

// TokensProcessed is the sum over turns of the tokens a turn was conditioned on and those it
// wrote, prefill included: what a policy without a cache from turn to turn would compute.
func (t *Trajectory) TokensProcessed() int {
	sum := 0
	for k := range t.Turns {
		sum += t.turnTokens(k)
	}
	return sum
}

// PeakContext is the largest number of tokens that a turn was conditioned on and wrote, prefill
// included; 0 without a turn.
func (t *Trajectory) PeakContext() int {
	peak := 0
	for k := range t.Turns {
		peak = max(peak, t.turnTokens(k))
	}
	return peak
}

func (t *Trajectory) turnTokens(turn int) int {
	tokens := t.Turns[turn].Tokens
	if context := t.Turns[turn].ContextIDs; context != nil {
		return len(context) + tokens.Len()
	}
	return len(t.PromptIDs) + tokens.End
}
