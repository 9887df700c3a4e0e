package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/retrieval"
)

// network is a web of its own: names with their addresses, all of which lead to one server.
type network struct {
	mutex  sync.Mutex
	names  map[string][]string // answers to lookups of a name, one after the other, the last one for ever
	server string              // address that dialled public IPs lead to
	dialed []string
	asked  map[string]int // lookups of a name
}

func (n *network) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	answers, known := n.names[host]
	if !known {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	k := min(n.asked[host], len(answers)-1)
	n.asked[host]++
	var ips []netip.Addr
	for _, ip := range strings.Fields(answers[k]) {
		ips = append(ips, netip.MustParseAddr(ip))
	}
	return ips, nil
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mutex.Lock()
	n.dialed = append(n.dialed, address)
	n.mutex.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, n.server)
}

func (n *network) dials() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Clone(n.dialed)
}

// publicIP is an address that a test's names lead to.
const publicIP = "93.184.216.34"

// newNetwork serves example.org and other.org by a handler.
func newNetwork(t *testing.T, handler http.HandlerFunc) *network {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &network{
		server: server.Listener.Addr().String(), asked: map[string]int{},
		names: map[string][]string{"example.org": {publicIP}, "other.org": {"93.184.216.35"}},
	}
}

// fetcher opens a network without robots.txt, unless options say so.
func (n *network) fetcher(t *testing.T, options Options) *Fetcher {
	t.Helper()
	options.Resolver, options.Dial = n, n.dial
	options.Timeout = orDefault(options.Timeout, 5*time.Second)
	f := New(options)
	t.Cleanup(f.Close)
	return f
}

func page(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}
}

// refusal is the *retrieval.RefusedError in err, or ends the test.
func refusal(t *testing.T, err error) *retrieval.RefusedError {
	t.Helper()
	var refused *retrieval.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("not refused: %v", err)
	}
	return refused
}

// failed is the *retrieval.ServiceError in err, or ends the test.
func failed(t *testing.T, err error) *retrieval.ServiceError {
	t.Helper()
	var failure *retrieval.ServiceError
	if !errors.As(err, &failure) {
		t.Fatalf("not a service error: %v", err)
	}
	return failure
}
