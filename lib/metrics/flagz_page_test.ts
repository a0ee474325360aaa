import { assertEquals } from "@std/assert";
import { flagzPage } from "./flagz_page.ts";

Deno.test("flagzPage() sorts flags, and takes out what may be secret", () => {
  const { lines, fields } = flagzPage({
    "v": "2",
    "master": "https://admin:hunter2@10.0.0.1:6443",
    "api-token": "abc",
    "kubeconfig": "/etc/kubeconfig",
  });
  assertEquals(lines, [
    "api-token=[redacted]",
    "kubeconfig=/etc/kubeconfig",
    "master=https://[redacted]@10.0.0.1:6443",
    "v=2",
  ]);
  const flags = Object.fromEntries(lines.map((line) => line.split("=")));
  assertEquals(fields, { flags });
});
