package retrieval

import "fmt"

// The kinds of a ServiceError. A call is tried again after a time-out, a refused, broken or
// impossible connection, and after a status of 500 and above or 429; never after anything else.
const (
	KindTimeout     = "time-out"
	KindRefused     = "connection refused"
	KindReset       = "connection broken"
	KindUnreachable = "not reachable" // no such host, no route
	KindStatus      = "bad status"
	KindReply       = "bad reply" // not HTTP, not TLS, too long, not JSON, another schema
	KindIndex       = "broken index or encoder"
)

// ServiceError says that a service failed a call, after all its tries. It is never the doing of
// whoever asked.
type ServiceError struct {
	Service  string // "search", "access", or the name of a custom tool
	URL      string // without a password
	Attempts int    // requests sent, or tried to send
	Timeouts int    // of them, those that ran into a time-out
	Kind     string // of the last attempt
	Detail   string // what was found: the status and the first bytes of the body, or the system's error
}

func (e *ServiceError) Error() string {
	return fmt.Sprintf("%s service %s: %s in attempt %d (%d time-outs): %s", e.Service, e.URL, e.Kind, e.Attempts, e.Timeouts, e.Detail)
}

// RefusedError says that an address is not one that may be fetched. Nothing was sent.
type RefusedError struct {
	URL    string
	Reason string
}

// Refuse makes the RefusedError of an address, of which it keeps the beginning.
func Refuse(address, reason string) *RefusedError {
	return &RefusedError{URL: firstBytes([]byte(address)), Reason: reason}
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("address %q refused: %s", e.URL, e.Reason)
}
