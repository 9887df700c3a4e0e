package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/retrieval"
)

func TestAccess(t *testing.T) {
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Cookie", "Authorization", "Referer"} {
			if r.Header.Get(name) != "" {
				t.Errorf("sent %s: %s", name, r.Header.Get(name))
			}
		}
		switch r.URL.Path {
		case "/robots.txt":
			w.WriteHeader(http.StatusNotFound)
		case "/moved":
			w.Header().Set("Set-Cookie", "a=b")
			http.Redirect(w, r, "http://other.org/lima", http.StatusFound)
		case "/lima":
			page("text/html", "<title>Lima</title><p>It is big.")(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		if agent := r.Header.Get("User-Agent"); agent != "mempo-train" {
			t.Errorf("user agent %q", agent)
		}
	})
	f := n.fetcher(t, Options{})
	for address, want := range map[string]string{
		"http://example.org/lima":    "Lima\nIt is big.",
		"http://example.org/moved":   "Lima\nIt is big.",
		"http://example.org/missing": "",
		"http://93.184.216.34/lima":  "Lima\nIt is big.",
	} {
		if text, err := f.Access(t.Context(), address); err != nil || text != want {
			t.Errorf("%s: %q, %v", address, text, err)
		}
	}
}

// TestLocalAddressesAreNotConnectedTo: nothing is dialled for what leads into a local network, by
// its address, its name, or a redirect.
func TestLocalAddressesAreNotConnectedTo(t *testing.T) {
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	})
	n.names["loop.example.org"] = []string{"127.0.0.1"}
	n.names["mapped.example.org"] = []string{"::ffff:10.0.0.1"}
	n.names["mixed.example.org"] = []string{publicIP + " 169.254.169.254"}
	f := n.fetcher(t, Options{IgnoreRobots: true})
	local := []string{
		"http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/x", "http://100.100.100.200/", "http://2130706433/", "file:///etc/passwd",
		"http://loop.example.org/", "http://mapped.example.org/", "http://mixed.example.org/", "http://10.0.0.5/", "http://a@127.0.0.1/",
	}
	for _, address := range local {
		_, err := f.Access(t.Context(), address)
		refusal(t, err)
	}
	if dials := n.dials(); len(dials) != 0 {
		t.Fatalf("dialled %v", dials)
	}
	for _, address := range local {
		_, err := f.Access(t.Context(), "http://example.org/?to="+address)
		refusal(t, err)
	}
	for _, dialed := range n.dials() {
		if dialed != publicIP+":80" {
			t.Errorf("dialled %s", dialed)
		}
	}
}

// TestRebinding: a name that leads to a public address first and then to a local one gains nothing:
// each connection goes to an address that was checked, with one lookup.
func TestRebinding(t *testing.T) {
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		page("text/plain", "page")(w, r)
	})
	n.names["rebind.org"] = []string{publicIP, "127.0.0.1"}
	f := n.fetcher(t, Options{IgnoreRobots: true})
	if text, err := f.Access(t.Context(), "http://rebind.org/"); err != nil || text != "page" || n.asked["rebind.org"] != 1 {
		t.Errorf("%q, %v after %d lookups", text, err, n.asked["rebind.org"])
	}
	_, err := f.Access(t.Context(), "http://rebind.org/")
	refusal(t, err)
	if dials := n.dials(); len(dials) != 1 || dials[0] != publicIP+":80" {
		t.Errorf("dialled %v", dials)
	}
}

func TestAllowedHostsMayBeLocal(t *testing.T) {
	n := newNetwork(t, page("text/plain", "page"))
	n.names["wiki"] = []string{"10.0.0.7"}
	f := n.fetcher(t, Options{IgnoreRobots: true, AllowHosts: []string{"wiki:8080"}})
	if text, err := f.Access(t.Context(), "http://wiki:8080/a"); err != nil || text != "page" {
		t.Errorf("%q, %v", text, err)
	}
	for _, address := range []string{"http://wiki/", "http://example.org/", "http://10.0.0.7:8080/"} {
		_, err := f.Access(t.Context(), address)
		refusal(t, err)
	}
	if dials := n.dials(); len(dials) != 1 || dials[0] != "10.0.0.7:8080" {
		t.Errorf("dialled %v", dials)
	}
}

func TestRefusals(t *testing.T) {
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, fmt.Sprintf("/loop?n=%dx", len(r.URL.RawQuery)), http.StatusFound)
		case "/pdf":
			page("application/pdf", "%PDF-1.7")(w, r)
		case "/disguised":
			page("text/html", "%PDF-1.7 \x00\x01")(w, r)
		case "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "/broken":
			w.Header().Set("Location", "http://[bad")
			w.WriteHeader(http.StatusFound)
		}
	})
	f := n.fetcher(t, Options{IgnoreRobots: true})
	for address, reason := range map[string]string{
		"http://example.org/loop":      "redirects more than 5 times",
		"http://example.org/pdf":       "application/pdf",
		"http://example.org/disguised": "application/pdf",
		"http://example.org/forbidden": "403 Forbidden",
		"http://example.org/broken":    "only http and https",
		"http://unknown.org/":          "no such host",
	} {
		_, err := f.Access(t.Context(), address)
		if refused := refusal(t, err); !strings.Contains(refused.Reason, reason) {
			t.Errorf("%s: %s", address, refused.Reason)
		}
	}
}

func TestHostileHosts(t *testing.T) {
	stop := make(chan struct{})
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		flush := w.(http.Flusher).Flush
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/drip":
			for {
				_, err := io.WriteString(w, "x")
				flush()
				select {
				case <-time.After(5 * time.Millisecond):
				case <-stop:
					return
				}
				if err != nil {
					return
				}
			}
		case "/endless":
			for {
				if _, err := io.WriteString(w, strings.Repeat("endless ", 4096)); err != nil {
					return
				}
			}
		case "/short":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "short")
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			zeros := bytes.Repeat([]byte("0"), 1<<20)
			for range 256 {
				if _, err := packed.Write(zeros); err != nil {
					return
				}
			}
		case "/packed":
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "??")
		case "/head":
			for k := range 2000 {
				w.Header().Set(fmt.Sprintf("X-%d", k), strings.Repeat("y", 100))
			}
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	defer close(stop)
	f := n.fetcher(t, Options{IgnoreRobots: true, Timeout: 500 * time.Millisecond, Tries: 2, MaxBytes: 1 << 20})
	for path, want := range map[string]retrieval.ServiceError{
		"/drip":   {Kind: retrieval.KindTimeout, Attempts: 2, Timeouts: 2},
		"/short":  {Kind: retrieval.KindReset, Attempts: 2},
		"/packed": {Kind: retrieval.KindReply, Attempts: 1},
		"/head":   {Kind: retrieval.KindReply, Attempts: 1},
		"/down":   {Kind: retrieval.KindStatus, Attempts: 2},
	} {
		_, err := f.Access(t.Context(), "http://example.org"+path)
		if got := failed(t, err); got.Kind != want.Kind || got.Attempts != want.Attempts || got.Timeouts != want.Timeouts || got.Service != "access" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	patient := n.fetcher(t, Options{IgnoreRobots: true, Timeout: time.Minute, MaxBytes: 1 << 20})
	for _, path := range []string{"/endless", "/bomb"} {
		text, err := patient.Access(t.Context(), "http://example.org"+path)
		if err != nil || len(text) == 0 || len(text) > 1<<20 {
			t.Errorf("%s: %d bytes, %v", path, len(text), err)
		}
	}
}

func TestAccessEndsWithItsContext(t *testing.T) {
	n := newNetwork(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := n.fetcher(t, Options{IgnoreRobots: true, Timeout: time.Minute}).Access(ctx, "http://example.org/")
	var failure *retrieval.ServiceError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failure) {
		t.Errorf("got %v", err)
	}
}

func TestRobots(t *testing.T) {
	asked := 0
	status := http.StatusServiceUnavailable
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/robots.txt" {
			page("text/plain", "page")(w, r)
			return
		}
		asked++
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /\n\nUser-agent: mempo-train\nDisallow: /private\n\x00\xff")
	})
	f := n.fetcher(t, Options{Tries: 1})
	_, err := f.Access(t.Context(), "http://example.org/a")
	if got := failed(t, err); got.Kind != retrieval.KindStatus {
		t.Errorf("%+v", got)
	}
	status = http.StatusOK
	for range 2 {
		if text, err := f.Access(t.Context(), "http://example.org/a"); err != nil || text != "page" {
			t.Errorf("%q, %v", text, err)
		}
		_, err = f.Access(t.Context(), "http://example.org/private/b")
		if refused := refusal(t, err); !strings.Contains(refused.Reason, "robots.txt") {
			t.Errorf("%v", refused)
		}
	}
	if asked != 2 {
		t.Errorf("robots.txt was read %d times", asked)
	}
	if text, err := n.fetcher(t, Options{IgnoreRobots: true}).Access(t.Context(), "http://example.org/private/b"); err != nil || text != "page" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRateOfOneHost(t *testing.T) {
	n := newNetwork(t, page("text/plain", "page"))
	f := n.fetcher(t, Options{IgnoreRobots: true, PerSecond: 10})
	started := time.Now()
	for range 4 {
		if _, err := f.Access(t.Context(), "http://example.org/"); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(started); took < 250*time.Millisecond {
		t.Errorf("4 requests at 10 a second took %s", took)
	}
	if _, err := f.Access(t.Context(), "http://other.org/"); err != nil {
		t.Error(err)
	}
}
