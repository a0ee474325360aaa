import { assertEquals, assertThrows } from "@std/assert";
import { KubeAuthError } from "./kube_identity.ts";
import { serverUrl } from "./server_url.ts";

const CASES: readonly (readonly [text: string, plain: string, tls?: string])[] = [
  ["https://192.0.2.1:6443", "https://192.0.2.1:6443"],
  ["http://127.0.0.1:8001/proxy", "http://127.0.0.1:8001/proxy"],
  ["192.0.2.1:6443", "http://192.0.2.1:6443", "https://192.0.2.1:6443"],
  ["[2001:db8::1]:6443", "http://[2001:db8::1]:6443", "https://[2001:db8::1]:6443"],
  ["api.example", "http://api.example", "https://api.example"],
  ["api.example:8443/", "http://api.example:8443", "https://api.example:8443"],
];

for (const [text, plain, tls = plain] of CASES) {
  Deno.test(`serverUrl() of '${text}' is ${plain}, and ${tls} where TLS is meant`, () => {
    assertEquals(serverUrl("--master", text, { usesTls: false }), plain);
    assertEquals(serverUrl("--master", text, { usesTls: true }), tls);
  });
}

const REFUSED = ["api.example/path", "ftp://api.example", "https://", "a b", "192.0.2.1:70000", ""];

for (const text of REFUSED) {
  Deno.test(`serverUrl() refuses '${text}', and names the field`, () => {
    const error = assertThrows(() => serverUrl("--master", text, { usesTls: true }), KubeAuthError);
    assertEquals(
      error.message,
      `Cannot use --master: '${text}' has to be a URL such as https://192.0.2.1:6443`,
    );
  });
}
