//go:build shared

package web

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListedAddressesAreNotConnectedTo takes the addresses of a list of known attacks.
func TestListedAddressesAreNotConnectedTo(t *testing.T) {
	file, err := os.Open(filepath.Join(os.Getenv("MEMPO_SHARED"), "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	f := n.fetcher(t, Options{IgnoreRobots: true})
	refused := 0
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var c struct{ Area, Input string }
		if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Area != "security" {
			continue
		}
		for word := range strings.FieldsSeq(c.Input) {
			if address := strings.TrimRight(word, ",."); strings.Contains(address, "://") {
				_, err := f.Access(t.Context(), address)
				refusal(t, err)
				_, err = f.Access(t.Context(), "http://example.org/?to="+address)
				refusal(t, err)
				refused++
			}
		}
	}
	if err := scanner.Err(); err != nil || refused < 6 {
		t.Errorf("%d addresses, %v", refused, err)
	}
	for _, dialed := range n.dials() {
		if dialed != publicIP+":80" {
			t.Errorf("dialled %s", dialed)
		}
	}
}
