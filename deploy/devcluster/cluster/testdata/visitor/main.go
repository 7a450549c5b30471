// Command visitor is what the tests run in a pod: it asks the API server, as any program in a cluster does, and ends;
// with an argument it serves, and with two it asks that host.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	switch len(os.Args) {
	case 2:
		fmt.Println(http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Args[1]) })))
		os.Exit(1)
	case 3:
		response, err := http.Get("http://" + os.Args[2] + ":8080")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		fmt.Printf("%s says %s %v\n", os.Args[2], body, err)
		return
	}
	body, err := ask()
	if err != nil {
		fmt.Println("the API server does not answer:", err)
		os.Exit(1)
	}
	fmt.Printf("the API server says %s\n", body)
}

func ask() (string, error) {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return "", err
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+host+"/healthz", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
