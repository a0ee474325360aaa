package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The two authorities have nothing to do with each other: clients trust the server's, the server the clients'.
const (
	serverAuthority = "server-ca"
	clientAuthority = "client-ca"
	servingName     = "server"
)

// authority is a certificate that signs others, with its key.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// prepareCertificates makes what is missing: both authorities, and the server's own certificate.
func prepareCertificates(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, name := range []string{serverAuthority, clientAuthority} {
		_, err := os.Stat(filepath.Join(folder, name+".crt"))
		if errors.Is(err, fs.ErrNotExist) {
			err = newAuthority(folder, name)
		}
		if err != nil {
			return err
		}
	}
	return issue(filepath.Join(folder, servingName), filepath.Join(folder, serverAuthority), &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		NotAfter:    time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "apiserver.kube-relay.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
}

// runCertificate issues a client certificate, from a new authority if asked.
func runCertificate(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("certificate", flag.ExitOnError)
	folder := flags.String("certificates", "", "folder of the authorities")
	user := flags.String("user", "", "user whom the certificate names")
	out := flags.String("out", "", "path of the certificate and key to write, without .crt and .key")
	validFor := flags.Duration("valid-for", 24*time.Hour, "how long the certificate is valid")
	rotate := flags.Bool("new-authority", false, "replace the clients' authority first: what the old one signed is refused")
	_ = flags.Parse(args)

	if *rotate {
		if err := newAuthority(*folder, clientAuthority); err != nil {
			return err
		}
	}
	return issue(*out, filepath.Join(*folder, clientAuthority), &x509.Certificate{
		Subject:     pkix.Name{CommonName: *user},
		NotAfter:    time.Now().Add(*validFor),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func newAuthority(folder, name string) error {
	return issue(filepath.Join(folder, name), "", &x509.Certificate{
		Subject:               pkix.Name{CommonName: name + " " + rand.Text()},
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
}

// issue writes path.crt and path.key, signed by the authority at that path, or by itself if there is none.
func issue(path, authorityPath string, template *x509.Certificate) error {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Minute)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	signer := authority{template, key}
	if authorityPath != "" {
		if signer, err = readAuthority(authorityPath); err != nil {
			return err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return err
	}
	keyDer, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePem(path+".key", "PRIVATE KEY", keyDer); err != nil {
		return err
	}
	return writePem(path+".crt", "CERTIFICATE", der)
}

func readAuthority(path string) (authority, error) {
	var found authority
	text, err := os.ReadFile(path + ".crt")
	if err != nil {
		return found, err
	}
	keyText, err := os.ReadFile(path + ".key")
	if err != nil {
		return found, err
	}
	block, _ := pem.Decode(text)
	keyBlock, _ := pem.Decode(keyText)
	if block == nil || keyBlock == nil {
		return found, errors.New(path + ".crt or .key is not PEM")
	}
	if found.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return found, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return found, err
	}
	found.key = key.(*ecdsa.PrivateKey)
	return found, nil
}

// writePem replaces the file in one step: servers and clients that watch it never see half of it.
func writePem(path, kind string, der []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
