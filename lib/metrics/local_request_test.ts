import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { isLocalRequest } from "./plain_answer.ts";

Deno.test.each(
  [
    ["127.0.0.1", "localhost:10249", true],
    ["127.0.0.1", "127.0.0.1:10249", true],
    ["::1", "[::1]:10249", true],
    ["127.0.0.1", "192.0.2.7:10249", true],
    ["127.0.0.1", "rebound.example:10249", false],
    ["127.0.0.1", "localhost.example:10249", false],
    ["192.0.2.7", "localhost:10249", false],
    ["192.0.2.7", "192.0.2.7:10249", false],
  ] as const,
)("isLocalRequest() of %s asking for %s", (peer, host, expected) => {
  const request = new Request(`http://${host}/`);
  assertEquals(isLocalRequest(request, parseIpAddress(peer)), expected);
});

Deno.test("isLocalRequest() trusts no peer whose address is unknown", () => {
  assertEquals(isLocalRequest(new Request("http://localhost/"), undefined), false);
});
