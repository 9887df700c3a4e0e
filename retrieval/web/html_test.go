package web

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestHTMLText(t *testing.T) {
	long := strings.Repeat("word ", 50)
	for html, want := range map[string]string{
		"":                                     "",
		"plain":                                "plain",
		"a &lt;b&gt; &amp;copy; &copy; &#x41;": "a <b> &copy; © A",
		"<title> The\n page </title><h1>Head</h1><p>One<b>two</b> three<p>four<br>five":           "The page\nHead\nOnetwo three\nfour\nfive",
		"<head><style>p{}</style><script>if (a<b) document.write('<p>x</p>')</script></head><p>y": "y",
		"<p>a</p><script>unclosed":                                    "a",
		"<div>a<div hidden>b<div>c</div>d</div>e</div>":               "a\ne",
		"<p hidden>secret<p>shown":                                    "shown",
		"<span style='color:red; Display : NONE'>a</span>b":           "b",
		"<i aria-hidden=TRUE>icon</i>b<template>t</template>c":        "bc",
		"<nav>menu<ul><li>x</ul></nav><ul><li>one<li>two</ul>":        "- one\n- two",
		"<table><tr><th>City<th>Size<tr><td>Lima<td>10</table>end":    "City | Size\nLima | 10\nend",
		"<pre>a\n  b</pre>c   d":                                      "a\nb\nc d",
		"<svg/>a<svg><text>b</text></svg>c":                           "ac",
		"<input hidden>a<img hidden>b":                                "ab",
		"a\x00b\x01\u200bc\u00add":                                    "abcd",
		"<p>out</p><main><p>" + long + "</p></main><p>out</p>":        strings.TrimSpace(long),
		"<p>out</p><div role=main>" + long + "<div>in</div></div>out": strings.TrimSpace(long) + "\nin",
		"<p>out</p><main>short</main><p>end</p>":                      "out\nshort\nend",
		"</div></main></p>a<//><!x><?y?><!--z--><a href='<b>'>b":      "ab",
		"\xff\xfe<p>\xe6":                                             "\uFFFD\n\uFFFD",
	} {
		if got := HTMLText(html); got != want {
			t.Errorf("%.80q:\n got %.200q\nwant %.200q", html, got, want)
		}
	}
}

// TestHTMLTextIsLinear: each of these would take minutes, or all memory, if tags were put into a tree.
func TestHTMLTextIsLinear(t *testing.T) {
	for _, unit := range []string{"<div>", "<div hidden>", "<b><i><a>", "</p>", "<p>x", "<table><td>", "<!--", "<title>", "<svg>", "&amp", "<a b=c ", "<li>", "<main>", "<"} {
		size := 1 << 20
		if unit == "<div>" {
			size = 10 << 20
		}
		html := strings.Repeat(unit, size/len(unit))
		started := time.Now()
		if text := HTMLText(html); len(text) > len(html) {
			t.Errorf("%q: %d bytes of text", unit, len(text))
		}
		if took := time.Since(started); took > time.Minute {
			t.Errorf("%d bytes of %q took %s", size, unit, took)
		}
	}
}

func TestCharsets(t *testing.T) {
	utf16 := "\xff\xfeL\x00i\x00m\x00a\x00"
	for _, c := range []struct{ body, contentType, want string }{
		{"<p>caf\xe9", "text/html; charset=iso-8859-1", "café"},
		{"<meta charset=windows-1251><p>\xcb\xe8\xec\xe0", "text/html", "Лима"},
		{"<p>東京", "text/html; charset=iso-8859-1", "東京"},
		{"<p>東京", "text/html; charset=utf-16", "東京"},
		{"<p>東京", "text/html; charset=no-such-thing", "東京"},
		{"<meta charset=utf-8><p>caf\xe9", "text/html", "caf\uFFFD"},
		{"\x93\x8c\x8b\x9e", "text/plain; charset=shift_jis", "東京"},
		{utf16, "text/plain", "Lima"},
		{"\xef\xbb\xbfLima\r\nPeru\x00", "text/plain", "Lima\nPeru"},
		{"{\"a\": 1}", "application/json", "{\"a\": 1}"},
		{"Lima", "", "Lima"},
		{"<html><p>Lima", "", "Lima"},
		{"Lima", "text/plain; charset=\"", "Lima"},
	} {
		text, refused := bodyText([]byte(c.body), c.contentType)
		if text != c.want || refused != "" {
			t.Errorf("%q as %s: %q, %s", c.body, c.contentType, text, refused)
		}
	}
	for _, contentType := range []string{"image/png", "application/octet-stream", "application/zip", "video/mp4", "image/svg+xml", "\x00/\x01"} {
		if text, refused := bodyText([]byte("Lima"), contentType); text != "" || refused == "" {
			t.Errorf("%q: %q, %q", contentType, text, refused)
		}
	}
}

func FuzzHTMLText(f *testing.F) {
	for _, seed := range []string{
		"<title>a</title><p>b", "<p hidden>a<p>b", "<main>a</main>", "<pre>a\nb", "<table><tr><td>a<td>b", "<li>a<li>", "\xff<p>\x00", "<svg/><plaintext>a",
	} {
		f.Add([]byte(seed), "text/html; charset=utf-8")
	}
	f.Add([]byte("\xff\xfea\x00"), "text/plain; charset=utf-16")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		text := HTMLText(string(body))
		// A byte becomes a character of three at most, and a block tag a line break and a bullet.
		if len(text) > 3*len(body)+1 || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("%d bytes make %q", len(body), text)
		}
		if text, refused := bodyText(body, contentType); text != "" && refused != "" || !utf8.ValidString(text) {
			t.Fatalf("%q, %q", text, refused)
		}
	})
}

func FuzzRobots(f *testing.F) {
	f.Add([]byte("User-agent: *\nDisallow: /a*b$\nAllow:\nCrawl-delay: x"), "/a")
	f.Add([]byte("<html>Disallow: (\n disallow : [\xff"), "/")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		robots, err := parseRobots(200, body)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		robots.TestAgent(path, robotsAgent)
	})
}
