package retrieval

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAccess(t *testing.T) {
	var body, path string
	url, _ := service(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		body, path = string(sent), r.URL.Path
		reply(200, `{"result":[{"page":"Lima 東京 <b>&</b>"}]}`)(w, r)
	}, reply(200, `{"result":[{"page":""}]}`))
	h, _ := client(t, HTTPOptions{URL: url + "/retrieve"})
	page, err := h.Access(t.Context(), "https://en.wikipedia.org/wiki/Lima")
	if err != nil || page != "Lima 東京 <b>&</b>" {
		t.Errorf("got %q, %v", page, err)
	}
	if body != `{"urls":["https://en.wikipedia.org/wiki/Lima"]}` || path != "/access" {
		t.Errorf("%s: %s", path, body)
	}
	if page, err := h.Access(t.Context(), "https://example.org/missing"); err != nil || page != "" {
		t.Errorf("a missing page: %q, %v", page, err)
	}
}

func TestAccessBadReplies(t *testing.T) {
	for body, want := range map[string]string{
		`{"result":[]}`:              "a list of 0, want 1",
		`{"result":["page"]}`:        "result[0]: is a JSON string, want an object",
		`{"result":[null]}`:          `result[0]: members none, want "page"`,
		`{"result":[{"text":"x"}]}`:  `result[0]: members "text", want "page"`,
		`{"result":[{"page":3}]}`:    "result[0]: page is a JSON number, want a string",
		`{"result":[{"page":null}]}`: `want "page", a string`,
	} {
		url, _ := service(t, reply(200, body))
		h, _ := client(t, HTTPOptions{URL: url})
		_, err := h.Access(t.Context(), "https://example.org")
		if failure := serviceError(t, err); failure.Kind != KindReply || failure.Service != "access" || failure.Attempts != 1 || !strings.Contains(failure.Detail, want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRefusedAddresses(t *testing.T) {
	url, requests := service(t, reply(200, `{"result":[{"page":"secret"}]}`))
	h, _ := client(t, HTTPOptions{URL: url})
	for _, address := range []string{
		"", "x", "Lima", "//example.org/", "file:///etc/passwd", "ftp://example.org", "javascript:alert(1)", "http://", "http:///path",
		"https://user@example.org", "http://exa mple.org/", "http://localhost/", "http://LOCALHOST:80", "http://a.localhost./",
		"http://printer.local", "http://metadata.google.internal/", "http://127.0.0.1/", "http://127.1/", "http://2130706433/",
		"http://0x7f.0.0.1/", "http://0177.0.0.01/", "http://0.0.0.0", "http://10.1.2.3", "http://172.16.0.1", "http://192.168.1.1:8080",
		"http://169.254.169.254/latest/meta-data", "http://100.64.0.1", "http://224.0.0.1", "http://255.255.255.255",
		"http://[::1]/", "http://[::]/", "http://[fe80::1%25eth0]/", "http://[fd00::1]/", "http://[::ffff:127.0.0.1]/", "http://intranet/",
		"https://example.org/" + strings.Repeat("x", 2048),
	} {
		_, err := h.Access(t.Context(), address)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Reason == "" || len(err.Error()) > 1000 {
			t.Errorf("%.60q: %v", address, err)
		}
	}
	if requests.Load() != 0 || h.Stats().Calls != 0 {
		t.Errorf("%d requests were sent", requests.Load())
	}
	for _, address := range []string{
		"http://example.org", "HTTPS://Example.ORG:443/a?b=c#d", "https://ja.wikipedia.org/wiki/東京", "http://8.8.8.8/", "http://[2606:4700::1111]/",
	} {
		if _, err := h.Access(t.Context(), address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	url, _ := service(t, reply(200, `{"result":[{"page":"p"}]}`))
	h, _ := client(t, HTTPOptions{URL: url, AllowHosts: []string{"en.wikipedia.org", "127.0.0.1"}})
	for address, allowed := range map[string]bool{
		"https://EN.wikipedia.org/wiki/Lima": true,
		"http://127.0.0.1:9000/page":         true,
		"https://de.wikipedia.org/":          false,
		"https://wikipedia.org/":             false,
		"https://en.wikipedia.org.evil.com/": false,
		"ftp://en.wikipedia.org/":            false,
	} {
		_, err := h.Access(t.Context(), address)
		var refused *RefusedError
		if (err == nil) != allowed || errors.As(err, &refused) == allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
}
