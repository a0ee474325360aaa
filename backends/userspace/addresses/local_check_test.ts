import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { FakeHost } from "../../../tests/support/fakes/fake_host.ts";
import { canBind, LocalCheck } from "./local_check.ts";

const vip = parseIpAddress("10.96.0.1");
const node = parseIpAddress("192.168.7.1");

Deno.test("LocalCheck.isLocal() knows loopback, interfaces and local routes, and nothing else", () => {
  const host = new FakeHost();
  host.interfaces.set(node, "eth0");
  const check = new LocalCheck(host.network);
  assertEquals(check.isLocal(parseIpAddress("127.3.4.5")), true);
  assertEquals(check.isLocal(parseIpAddress("::1")), true);
  assertEquals(check.isLocal(node), true);
  assertEquals(check.isLocal(vip), false);
  host.lo.add(vip);
  assertEquals(check.isLocal(vip), true);
});

Deno.test("LocalCheck.isLocal() is not fooled if every bind succeeds (ip_nonlocal_bind=1)", () => {
  const host = new FakeHost();
  host.interfaces.set(node, "eth0");
  host.nonlocalBind.IPv4 = "1";
  const check = new LocalCheck(host.network);
  assertEquals(check.isLocal(vip), false);
  assertEquals(check.isLocal(node), true);
});

Deno.test("LocalCheck.isLocal() says no if every bind succeeds and no interface can be read", () => {
  const host = new FakeHost();
  host.nonlocalBind.IPv4 = "1";
  const interfaceAddresses = () => {
    throw new Error("Too many open files (os error 24)");
  };
  const check = new LocalCheck({ ...host.network, interfaceAddresses });
  assertEquals(check.isLocal(node), false);
});

Deno.test("canBind() agrees with the machine on loopback and on an unassigned address", () => {
  assertEquals(canBind(systemNetwork, parseIpAddress("127.112.0.1")), true);
  const nobodys = new LocalCheck(systemNetwork).isLocal(parseIpAddress("192.0.2.7"));
  assertEquals(nobodys, false);
});
