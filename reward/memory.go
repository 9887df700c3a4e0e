package reward

import (
	"fmt"
	"math"
)

// AnswerProbability turns the log-probabilities of an answer's tokens into P(answer | context).
// "geometric" is exp of their mean, the geometric mean of the token probabilities, which does not
// shrink with the answer's length; "product" is exp of their sum. NaN for an answer of no tokens.
func AnswerProbability(logprobs []float32, mode string) (float64, error) {
	sum := 0.0
	for _, logprob := range logprobs {
		sum += float64(logprob)
	}
	switch {
	case mode != "geometric" && mode != "product":
		return 0, fmt.Errorf(`answer_prob is %q, allowed: "geometric" or "product"`, mode)
	case len(logprobs) == 0:
		return math.NaN(), nil
	case mode == "product":
		return math.Exp(sum), nil
	}
	return math.Exp(sum / float64(len(logprobs))), nil
}

// MemoryReward is what a memory is worth: how much likelier the golden answer is after the prompt
// and this memory alone than after the whole history ("mem_minus_full"), or its probability after
// the memory as such ("mem"). NaN, no reward, for "off".
func MemoryReward(pMem, pFull float64, mode string) (float64, error) {
	switch mode {
	case "mem_minus_full":
		return pMem - pFull, nil
	case "mem":
		return pMem, nil
	case "off":
		return math.NaN(), nil
	}
	return 0, fmt.Errorf(`memory_reward is %q, allowed: "mem_minus_full", "mem" or "off"`, mode)
}
