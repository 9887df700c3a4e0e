package address

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	for text, reason := range map[string]string{
		"":                             "only http",
		"//example.org/":               "only http",
		"file:///etc/passwd":           "only http",
		"gopher://example.org":         "only http",
		"http://":                      "no host",
		"http://./":                    "no host",
		"http://user:pw@example.org/":  "user name",
		"http://example.org@127.0.0.1": "user name",
		"http://exa mple.org/":         "not an address",
		"http://example.org:port/":     "not an address",
		"http://example.org:22/":       "ports",
		"http://example.org:8080/":     "ports",
		"http://127.0.0.1/":            "local network",
		"http://127.0.0.1./":           "local network",
		"http://127.1/":                "local network",
		"http://2130706433/":           "local network",
		"http://0x7f000001/":           "local network",
		"http://0x7f.0.0.1/":           "local network",
		"http://0177.0.0.1/":           "local network",
		"http://017700000001/":         "local network",
		"http://１２７.０.０.１/":            "local network",
		"http://127。0。0。1/":            "local network",
		"http://①②⑦.0.0.1/":            "local network",
		"http://[::1]/":                "local network",
		"http://[::ffff:7f00:1]/":      "local network",
		"http://[::127.0.0.1]/":        "local network",
		"http://[64:ff9b::10.0.0.1]/":  "local network",
		"http://[2002:7f00:1::]/":      "local network",
		"http://[fe80::1%25eth0]/":     "local network",
		"http://[fec0::1]/":            "local network",
		"http://[fd12::1]/":            "local network",
		"http://[ff02::1]/":            "local network",
		"http://169.254.169.254/x":     "local network",
		"http://100.100.100.200/":      "local network",
		"http://168.63.129.16/":        "local network",
		"http://LOCALHOST/":            "local network",
		"http://ｌｏｃａｌｈｏｓｔ/":            "local network",
		"http://a.localhost./":         "local network",
		"http://printer.lan/":          "local network",
		"http://intranet/":             "local network",
		"http://xn--\u0301.org/":       "name of a host",
		"http://example.org/" + strings.Repeat("x", maxLength): "too long",
	} {
		if u, err := Parse(text, nil); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%.60s: %v, %v; want %q", text, u, err, reason)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"http://example.org":               "http://example.org",
		"HTTPS://Example.ORG.:443/a?b=c#d": "https://example.org:443/a?b=c#d",
		"https://ja.wikipedia.org/wiki/東":  "https://ja.wikipedia.org/wiki/%E6%9D%B1",
		"https://münchen.de/":              "https://xn--mnchen-3ya.de/",
		"http://8.8.8.8/":                  "http://8.8.8.8/",
		"http://[2606:4700::1111]:80/":     "http://[2606:4700::1111]:80/",
		"http://[2606:4700::1111]/":        "http://[2606:4700::1111]/",
		"http://[64:ff9b::8.8.8.8]/":       "http://[64:ff9b::808:808]/",
	} {
		if u, err := Parse(text, nil); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, u, err, want)
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	allowed := []string{"en.wikipedia.org", "127.0.0.1", "intranet:8080", "::1"}
	for text, want := range map[string]bool{
		"https://EN.wikipedia.org/wiki/Lima":  true,
		"http://127.0.0.1:9000/page":          true,
		"http://intranet:8080/":               true,
		"http://[::1]/":                       true,
		"http://intranet/":                    false,
		"https://de.wikipedia.org/":           false,
		"https://wikipedia.org/":              false,
		"https://en.wikipedia.org.evil.com/":  false,
		"ftp://en.wikipedia.org/":             false,
		"http://en.wikipedia.org@example.org": false,
	} {
		if _, err := Parse(text, allowed); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "100.63.255.255": true, "100.128.0.0": true, "172.15.255.255": true, "172.32.0.0": true,
		"192.169.0.1": true, "223.255.255.255": true, "2606:4700::1": true, "::ffff:8.8.8.8": true, "64:ff9b::1.1.1.1": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.255.255.255": false, "100.64.0.0": false, "100.127.255.255": false,
		"127.255.255.254": false, "169.254.0.1": false, "172.16.0.0": false, "172.31.255.255": false, "192.0.0.8": false,
		"192.0.2.1": false, "192.168.255.255": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false,
		"203.0.113.1": false, "224.0.0.1": false, "239.1.1.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::8.8.8.8": false, "::ffff:10.0.0.1": false, "64:ff9b::127.0.0.1": false, "64:ff9b:1::1": false,
		"100::1": false, "2001::1": false, "2001:2::1": false, "2001:db8::1": false, "2002:808:808::1": false, "3fff::1": false,
		"5f00::1": false, "fc00::1": false, "fd00::1": false, "fe80::1": false, "febf::1": false, "fec0::1": false, "ff02::1": false,
	} {
		if got := Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if Public(netip.Addr{}) || Public(netip.MustParseAddr("2606:4700::1%eth0")) {
		t.Error("no address, or one with a zone, counts as public")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"http://example.org", "http://[::1%25x]:80/", "https://①.①/", "http://xn--a.org", "http://%31.org", "http://a:b@c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text, nil)
		if err != nil {
			return
		}
		// What has passed once, written out, passes again as the same: nothing is read in two ways.
		again, err := Parse(u.String(), nil)
		if err != nil && len(u.String()) <= maxLength {
			t.Fatalf("%q passes as %q, which does not: %v", text, u, err)
		}
		if err == nil && again.Host != u.Host {
			t.Fatalf("%q is %q, then %q", text, u.Host, again.Host)
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !Public(ip) {
			t.Fatalf("%q leads to %v", text, ip)
		}
	})
}
