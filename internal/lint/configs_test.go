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
		if err := load(filepath.Join(root, file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func load(path string) error {
	kind, err := config.KindOf(path)
	if err != nil {
		return err
	}
	switch kind {
	case config.KindWorld:
		_, err = config.LoadWorld(path, nil)
	case config.KindSFT:
		_, err = config.LoadSFT(path, nil)
	case config.KindIndex:
		_, err = config.LoadIndex(path, nil)
	case config.KindRetrieve:
		_, err = config.LoadRetrieve(path, nil)
	case config.KindEvaluation:
		_, err = config.LoadEvaluation(path, nil)
	default:
		_, err = config.Load(path, nil)
	}
	return err
}
