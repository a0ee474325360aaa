import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { isSameSetup, readVirtualServers, type SeenServer } from "./virtual_servers.ts";

/** Runs the work at once. */
function read(text: string): SeenServer[] {
  const work = readVirtualServers(text);
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** As Linux 6.1 prints it. */
const TEXT = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr  persistent 1080000 FFFFFFFF
  -> 0A010102:192B      Masq    1      3          12        
  -> 0A010103:192B      Masq    0      0          1         
UDP  0A60000A:0035 rr ops 
SCTP 0A60000A:0035 wlc 
TCP  [fd00:0096:0000:0000:0000:0000:0000:0001]:0050 mh 
  -> [fd00:0010:0000:0000:0000:0000:0000:0002]:1F90      Masq    1      0          0         
FWM  00000007 lc persistent 30000 FFFFFF00
  -> C0A80001:0000      Route   5      1          0         
`;

function lines(servers: readonly SeenServer[]): string[] {
  return servers.flatMap(({ key, setup, reals }) => [
    `${key} ${setup}`,
    ...reals.map(({ key, isMasqueraded, weight, active, inactive }) =>
      `  ${key} ${isMasqueraded} ${weight} ${active} ${inactive}`
    ),
  ]);
}

Deno.test("readVirtualServers() reads servers of both families, of every protocol", () => {
  assertEquals(lines(read(TEXT)), [
    "-t 10.96.0.1:443 -s rr -p 1080000 ticks",
    "  10.1.1.2:6443 true 1 3 12",
    "  10.1.1.3:6443 true 0 0 1",
    "-u 10.96.0.10:53 -s rr -o",
    "--sctp-service 10.96.0.10:53 -s wlc",
    "-t [fd00:96::1]:80 -s mh",
    "  [fd00:10::2]:8080 true 1 0 0",
  ]);
});

Deno.test("readVirtualServers() ignores the real servers of an unreadable virtual server", () => {
  const text = TEXT.replace(
    "UDP  0A60000A:0035",
    "XTP  0A60000A:0035\n  -> 0A010109:192B Masq 1 0 0",
  );
  assertEquals(read(text).flatMap(({ reals }) => reals).length, 3);
});

Deno.test("readVirtualServers() never throws, wherever the text is broken", () => {
  fc.assert(fc.property(fc.array(fc.oneof(fc.string(), fc.nat(TEXT.length))), (parts) => {
    const text = parts.map((part) => typeof part === "string" ? part : TEXT.slice(part)).join("\n");
    for (const { key, reals } of read(text)) {
      assertEquals([typeof key, Array.isArray(reals)], ["string", true]);
    }
  }));
});

Deno.test("readVirtualServers() pauses on its way through a long table", () => {
  const work = readVirtualServers(TEXT.repeat(100));
  assertEquals(work.next().done, false);
});

Deno.test("isSameSetup() knows each length of a tick that kernels have, and ignores flags", () => {
  for (const ticks of [100, 250, 300, 1000]) {
    assertEquals(isSameSetup(`-s rr -p ${10_800 * ticks} ticks`, "-s rr -p 10800"), true);
  }
  assertEquals(isSameSetup("-s rr -p 1080000 ticks", "-s rr -p 10000"), false);
  assertEquals(isSameSetup("-s rr", "-s rr -p 10800"), false);
  assertEquals(isSameSetup("-s rr -p 1080000 ticks", "-s rr"), false);
  assertEquals(isSameSetup("-s mh", "-s mh -b mh-port"), true);
  assertEquals(isSameSetup("-s rr -o", "-s rr"), false);
});
