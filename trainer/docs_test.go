package trainer

import (
	"os"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
)

// The metrics reference names what the stars of its names stand for.
func TestTheReferenceNamesStagesAndStopReasons(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			rows[strings.Trim(cells[1], " `")] = cells[2]
		}
	}
	stages := []string{stageRollout, stageMemory, stageOld, stageRef, stageUpdate, StageEvaluation}
	var reasons []string
	for _, reason := range rollout.StopReasons() {
		reasons = append(reasons, string(reason))
	}
	for metric, words := range map[string][]string{
		"time/*_s": append(stages, "step"), "tokens/*": append(stages, "generated"), "rollout/stop/*": reasons,
	} {
		for _, word := range words {
			if !strings.Contains(rows[metric], "`"+word+"`") {
				t.Errorf("docs/metrics.md: the row of %s does not name %s", metric, word)
			}
		}
	}
}
