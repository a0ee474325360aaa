import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import { assertEquals, assertRejects } from "@std/assert";
import { findAffinity } from "./find_affinity.ts";
import type { Slots } from "./slots.ts";

const SLOTS = new Map<string, number>([["10.0.0.1:80", 0x85f09234], [
  "10.0.0.2:80",
  0x85f08077,
]]) as ReadonlyMap<string, number> as Slots;
const CLIENT = "0x85f08000 . 10.0.0.9";

function packet(to: string): Pick<Packet, "from" | "to"> {
  return { from: { kind: "pod", address: parseIpAddress("10.0.0.9") }, to: parseIpAddress(to) };
}

function printed(value: string): string {
  return `table ip kube-relay {
\tmap affinity {
\t\telements = { ${CLIENT} timeout 3h expires 2h59m58s996ms : ${value} }
\t}
}`;
}

for (
  const [name, text, expected] of [
    ["a handle of tc, as nft prints a priority", printed("85f0:8077"), {
      endpoint: "10.0.0.2:80",
      expiresInSeconds: 10_798,
    }],
    ["a number", printed("0x85f08077"), { endpoint: "10.0.0.2:80", expiresInSeconds: 10_798 }],
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
    const found = await findAffinity({ element }, SLOTS, packet("10.96.0.1"));
    assertEquals(asked, [`affinity { ${CLIENT} }`]);
    assertEquals<unknown>(found, expected);
  });
}

Deno.test("findAffinity() reports that it cannot ask in IPv6", async () => {
  const element = () => Promise.reject(new Error("asked"));
  await assertRejects(
    () => findAffinity({ element }, SLOTS, packet("fd00::1")),
    Error,
    "by a hash",
  );
});

Deno.test("findAffinity() asks for no client without an endpoint", async () => {
  const element = () => Promise.reject(new Error("asked"));
  assertEquals(await findAffinity({ element }, new Map(), packet("10.96.0.1")), undefined);
});
