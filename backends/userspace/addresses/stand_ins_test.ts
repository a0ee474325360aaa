import { assert, assertEquals, assertThrows } from "@std/assert";
import { cidrContains } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { type ServiceKey, serviceKey } from "../../../lib/proxy/service_port_name.ts";
import { STAND_IN_RANGE, standInPort, StandIns } from "./stand_ins.ts";

const web = serviceKey({ namespace: "ns1", name: "web" });
const dns = serviceKey({ namespace: "kube-system", name: "dns" });

function notUsed(): boolean {
  return false;
}

Deno.test("StandIns gives a Service the same address in every run", () => {
  const first = new StandIns();
  const second = new StandIns();
  second.allocate(dns, notUsed);
  assertEquals(first.allocate(web, notUsed), second.allocate(web, notUsed));
});

Deno.test("StandIns gives each of 20,000 Services an address of its own inside the range", () => {
  const standIns = new StandIns();
  const seen = new Set<IpAddress>();
  for (let i = 0; i < 20_000; i++) {
    const address = standIns.allocate(`ns/svc-${i}` as ServiceKey, notUsed);
    assert(cidrContains(STAND_IN_RANGE, address), address);
    seen.add(address);
  }
  assertEquals(seen.size, 20_000);
});

Deno.test("StandIns spreads Services over the whole range", () => {
  const standIns = new StandIns();
  const second = new Set<string>();
  for (let i = 0; i < 2_000; i++) {
    second.add(standIns.allocate(`ns/svc-${i}` as ServiceKey, notUsed).split(".")[1] ?? "");
  }
  assertEquals(second.size, 16);
});

Deno.test("StandIns uses the next address when the one of the hash is in use", () => {
  const home = new StandIns().allocate(web, notUsed);
  const standIns = new StandIns();
  const next = standIns.allocate(web, (address) => address === home);
  assert(next !== home);
  assertEquals(standIns.allocate(web, (address) => address === home), next, "and keeps it");
});

Deno.test("StandIns keeps the recorded addresses of an earlier run, whatever the hash is", () => {
  const recorded = parseIpAddress("127.112.0.7");
  const standIns = new StandIns([[web, recorded]]);
  assertEquals(standIns.allocate(web, notUsed), recorded);
  assertEquals(standIns.changed, false);
});

Deno.test("StandIns does not give a recorded address to another Service", () => {
  const home = new StandIns().allocate(web, notUsed);
  const standIns = new StandIns([[dns, home]]);
  assert(standIns.allocate(web, notUsed) !== home);
  assertEquals(standIns.allocate(dns, notUsed), home);
});

Deno.test("StandIns.release() frees the address and marks a change", () => {
  const home = new StandIns().allocate(web, notUsed);
  const standIns = new StandIns([[dns, home]]);
  standIns.release(dns);
  assertEquals(standIns.changed, true);
  standIns.markRecorded();
  assertEquals(standIns.changed, false);
  assertEquals(standIns.allocate(web, notUsed), home);
  assertEquals([...standIns.entries.keys()], [web]);
});

Deno.test("standInPort() is the same each time, in its range, and counts up around its end", () => {
  const port = parsePort(80);
  const seen = new Set<number>();
  for (let attempt = 0; attempt < 12_768; attempt++) {
    const found = standInPort(web, { port, protocol: "TCP", attempt });
    assert(found >= 20_000 && found <= 32_767, `${found}`);
    seen.add(found);
  }
  assertEquals(seen.size, 12_768);
  const first = { port, protocol: "TCP", attempt: 0 } as const;
  assertEquals(standInPort(web, first), standInPort(web, first));
  assert(standInPort(web, first) !== standInPort(web, { ...first, protocol: "UDP" }));
});

Deno.test("StandIns says when the range is exhausted", () => {
  assertThrows(() => new StandIns().allocate(web, () => true), RangeError, "ns1/web");
});
