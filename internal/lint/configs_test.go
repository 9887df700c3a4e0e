package lint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
)

func TestEveryShippedConfigLoads(t *testing.T) {
	for _, file := range sourceFiles(t, ".toml") {
		if !strings.HasPrefix(file, "configs/") {
			continue
		}
		if _, err := config.Load(filepath.Join(root, file), nil); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
