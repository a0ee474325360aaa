import { assertEquals, assertRejects } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import { testEndpoint } from "../../tests/support/service_plans.ts";
import { findAffinity } from "./find_affinity.ts";
import { slotsOf } from "./slots.ts";

const reachable = [testEndpoint("10.0.0.1:80"), testEndpoint("10.0.0.2:80")];
const [, SLOT = "0x0"] = slotsOf(reachable).values();
/** As nft prints a priority: a handle of tc. */
const HANDLE = `${(Number(SLOT) >>> 16).toString(16)}:${(Number(SLOT) & 0xffff).toString(16)}`;

function packet(to: string): Packet {
  return {
    from: { kind: "pod", address: parseIpAddress("10.0.0.9") },
    to: parseIpAddress(to),
    port: parsePort(80),
    protocol: "TCP",
  };
}

function printed(value: string): string {
  return `table ip kube-relay {
\tmap affinity {
\t\telements = { 10.0.0.9 . 10.96.0.1 . tcp . 80 timeout 3h expires 2h59m58s996ms : ${value} }
\t}
}`;
}

for (
  const [name, text, expected] of [
    ["a handle", printed(HANDLE), { endpoint: "10.0.0.2:80", expiresInSeconds: 10_798 }],
    ["a number", printed(SLOT), { endpoint: "10.0.0.2:80", expiresInSeconds: 10_798 }],
    ["an endpoint that has gone", printed("1:2"), undefined],
    ["nothing", undefined, undefined],
  ] as const
) {
  Deno.test(`findAffinity() reads ${name}`, async () => {
    const asked: string[] = [];
    const element = (container: string, key: string) => {
      asked.push(`${container} { ${key} }`);
      return Promise.resolve(text);
    };
    const found = await findAffinity({ element }, { reachable }, packet("10.96.0.1"));
    assertEquals(asked, ["affinity { 10.0.0.9 . 10.96.0.1 . tcp . 80 }"]);
    assertEquals<unknown>(found, expected);
  });
}

Deno.test("findAffinity() says that it cannot ask in IPv6", async () => {
  const element = () => Promise.reject(new Error("asked"));
  await assertRejects(
    () => findAffinity({ element }, { reachable }, packet("fd00::1")),
    Error,
    "by a hash",
  );
});
