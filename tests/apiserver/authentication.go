package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// tokenFile reads its file again when that has changed, which the library's own reader never does:
// tests rotate tokens under a running server.
type tokenFile struct {
	path string

	mutex    sync.Mutex
	modified time.Time
	size     int64
	current  authenticator.Token
}

func (f *tokenFile) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	current, err := f.reread()
	if err != nil {
		return nil, false, err
	}
	return current.AuthenticateToken(ctx, token)
}

func (f *tokenFile) reread() (authenticator.Token, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if f.current != nil && info.ModTime().Equal(f.modified) && info.Size() == f.size {
		return f.current, nil
	}
	read, err := tokenfile.NewCSV(f.path)
	if err != nil {
		return nil, err
	}
	f.current, f.modified, f.size = read, info.ModTime(), info.Size()
	return read, nil
}

// newAuthenticator knows users by token and by client certificate. There is no anonymous user: with
// one, the library ends each of its HTTP/2 responses with a GOAWAY.
func newAuthenticator(tokens string, clientAuthority *dynamiccertificates.DynamicFileCAContent) authenticator.Request {
	return group.NewAuthenticatedGroupAdder(union.New(
		x509.NewDynamic(clientAuthority.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(&tokenFile{path: tokens}),
	))
}

// forbidden allows everything but the lines USER=RESOURCE of a file, which is read for each request:
// tests take rights away and give them back under a running server, or before it has started.
type forbidden string

func (f forbidden) Authorize(_ context.Context, access authorizer.Attributes) (authorizer.Decision, string, error) {
	lines, err := os.ReadFile(string(f))
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	for _, line := range strings.Fields(string(lines)) {
		if line == access.GetUser().GetName()+"="+access.GetResource() {
			return authorizer.DecisionDeny, "forbidden by --forbidden", nil
		}
	}
	return authorizer.DecisionAllow, "", nil
}
