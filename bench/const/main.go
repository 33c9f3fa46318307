// Command const is an admission webhook that allows everything and changes nothing: what any
// webhook costs. With -patch it changes everything, always by the same patch: what any webhook
// costs that changes something. It signs its own certificate and prints it, for the caBundle.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

type review struct {
	Request struct {
		UID string `json:"uid"`
	} `json:"request"`
}

// answering returns a handler that allows, with rest in its answer after that.
func answering(rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked review
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`+
			`"response":{"uid":%q,"allowed":true%s}}`, asked.Request.UID, rest)
	}
}

func certificate(address string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.ParseIP(address)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

func main() {
	address := flag.String("address", "127.0.0.1", "IP address to listen on")
	patch := flag.String("patch", "", "JSON Patch of every answer")
	flag.Parse()
	own := certificate(*address)
	listener, err := net.Listen("tcp", net.JoinHostPort(*address, "0"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	_ = pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
	os.Stdout.Close()
	rest := ""
	if *patch != "" {
		encoded := base64.StdEncoding.EncodeToString([]byte(*patch))
		rest = `,"patchType":"JSONPatch","patch":"` + encoded + `"`
	}
	server := &http.Server{
		Handler:   answering(rest),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}},
	}
	log.Fatal(server.ServeTLS(listener, "", ""))
}
