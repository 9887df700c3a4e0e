package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/retrieval"
)

// withAccess loads the tools of a run that opens pages.
func withAccess(t *testing.T, path string, sets ...string) *toolset {
	t.Helper()
	c, err := config.Load(path, append(sets, `tools.enabled=["search", "access"]`))
	if err != nil {
		t.Fatal(err)
	}
	tools, err := loadTools(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.close)
	return tools
}

// TestPagesOfAServiceAreRecordedAndReplayed through the settings of a run.
func TestPagesOfAServiceAreRecordedAndReplayed(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	url, asked := service(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"result":[{"page":"Lima <b>"}]}`)
	})
	folder := filepath.Join(t.TempDir(), "pages")
	recording := []string{"tools.access.url=" + url, "tools.access.record=" + folder}
	out, err := check(path, append(recording, `tools.enabled=["search", "access"]`)...)
	if err != nil {
		t.Error(err)
	}
	holds(t, out, "access: service at "+url+", reachable", "access: pages are recorded in "+folder)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("check made the folder: %v", err)
	}
	live := withAccess(t, path, recording...)
	for range 2 {
		if page, err := live.Access.Access(t.Context(), "https://example.org/lima"); err != nil || page != "Lima <b>" {
			t.Errorf("%q, %v", page, err)
		}
	}
	if asked.Load() != 1 || live.CacheHits() != 1 {
		t.Errorf("%d requests, %d hits", asked.Load(), live.CacheHits())
	}
	replaying := []string{"tools.access.via=folder", "tools.access.folder=" + folder}
	stored := withAccess(t, path, replaying...)
	for address, want := range map[string]string{"http://example.org/lima/": "Lima <b>", "https://example.org/peru": ""} {
		if page, err := stored.Access.Access(t.Context(), address); err != nil || page != want {
			t.Errorf("%s: %q, %v", address, page, err)
		}
	}
	out, err = check(path, append(replaying, `tools.enabled=["search", "access"]`)...)
	if err != nil {
		t.Error(err)
	}
	holds(t, out, "access: 1 pages of "+folder)
}

func TestTheWebIsOpenedDirectly(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	server, asked := service(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>T</title><p>text")
	})
	host := server[len("http://"):]
	sets := []string{"tools.access.via=direct", "tools.access.robots=false", "tools.access.per_second=0.5"}
	tools := withAccess(t, path, sets...)
	var refused *retrieval.RefusedError
	if _, err := tools.Access.Access(t.Context(), server+"/"); !errors.As(err, &refused) || asked.Load() != 0 {
		t.Errorf("a host of the local network: %v, %d requests", err, asked.Load())
	}
	tools = withAccess(t, path, append(sets, "tools.access.allow_hosts="+host)...)
	if page, err := tools.Access.Access(t.Context(), server+"/a"); err != nil || page != "T\ntext" {
		t.Errorf("%q, %v", page, err)
	}
	out, err := check(path, append(sets, "tools.access.allow_hosts="+host, `tools.enabled=["search", "access"]`)...)
	if err != nil {
		t.Error(err)
	}
	holds(t, out, "access: from the web, only "+host+", 0.5 requests a second to each (0 is no bound), robots.txt is not asked")
	for set, want := range map[string]string{
		"tools.access.allow_hosts=https://example.org": `"https://example.org"`,
		"tools.access.allow_hosts=Example.org":         `"Example.org"`,
		"tools.access.via=folder":                      "tools.access.folder is not set",
	} {
		_, err := check(path, append(sets, `tools.enabled=["search", "access"]`, set)...)
		finds(t, err, 2, want)
	}
}
