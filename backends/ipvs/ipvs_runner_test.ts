import { assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ServerRates } from "../../lib/proxy/service_mode.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import { readServerRates } from "./ipvs_runner.ts";

/** Runs the work at once. */
function read(text: string): ReadonlyMap<string, ServerRates> {
  return atOnce(readServerRates(text));
}

/** Of ipvsadm 1.31. */
const LISTING = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS
  -> RemoteAddress:Port
TCP  10.96.0.1:443                       2       14       11     1204    88120
  -> 10.1.1.2:6443                       2       14       11     1204    88120
UDP  [fd00:96::a]:53                     0        1 12345678901        7        8
FWM  7                                   1        1        1        1        1
`;

Deno.test("readServerRates() reads virtual servers of both families", () => {
  assertEquals([...read(LISTING)], [
    ["-t 10.96.0.1:443", {
      connections: 2,
      packetsIn: 14,
      packetsOut: 11,
      bytesIn: 1204,
      bytesOut: 88_120,
    }],
    ["-u [fd00:96::a]:53", {
      connections: 0,
      packetsIn: 1,
      packetsOut: 12_345_678_901,
      bytesIn: 7,
      bytesOut: 8,
    }],
  ]);
});

Deno.test("readServerRates() never throws, wherever the text is broken", () => {
  const cut = fc.nat(LISTING.length);
  fc.assert(fc.property(cut, cut, fc.string({ unit: "binary" }), (from, to, noise) => {
    const text = LISTING.slice(0, from) + noise + LISTING.slice(to);
    for (const rates of read(text).values()) {
      assertEquals(Object.values(rates).every(Number.isFinite), true);
    }
  }));
});
