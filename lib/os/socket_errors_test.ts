import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { systemError } from "../../tests/support/fakes/fake_network.ts";
import {
  isOutOfSockets,
  isOwnShortage,
  isPortRefused,
  listenProblem,
  systemErrorOf,
} from "./socket_errors.ts";

const ADDRESS = parseIpAddress("10.96.0.1");

Deno.test("systemErrorOf() names the errors of Deno, and none of others", () => {
  using first = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  // 192.0.2.0/24 is for documentation: no machine has it.
  const addresses = [first.addr, { hostname: "192.0.2.1", port: 0 }];
  const errors = addresses.map(({ hostname, port }) =>
    assertThrows(() => Deno.listen({ hostname, port }))
  );
  assertEquals(errors.map(systemErrorOf), ["EADDRINUSE", "EADDRNOTAVAIL"]);
  assertEquals(errors.map(isPortRefused), [true, false]);
  const others = [new Error("x"), "text", undefined, Object.assign(new Error(), { code: 1 })];
  assertEquals(others.map(systemErrorOf), Array(4).fill(undefined));
});

Deno.test("isOwnShortage() knows when no endpoint is to blame", () => {
  const shortages = ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"].map((name) => systemError(name));
  const ports = ["EADDRINUSE", "EADDRNOTAVAIL"].map((name) => systemError(name));
  const others = ["ECONNREFUSED", "EHOSTUNREACH"].map((name) => systemError(name));
  const all = [...shortages, ...ports, ...others];
  assertEquals(all.map(isOutOfSockets), all.map((error) => shortages.includes(error)));
  assertEquals(all.map(isOwnShortage), all.map((error) => !others.includes(error)));
});

Deno.test("listenProblem() names the remedy", async (t) => {
  const cases: [string, number, RegExp][] = [
    ["EADDRINUSE", 80, /another program listens on port 80/],
    ["EADDRNOTAVAIL", 80, /10\.96\.0\.1 is not an address of this machine/],
    ["EACCES", 80, /CAP_NET_BIND_SERVICE.*ip_unprivileged_port_start=80/],
    ["EACCES", 8080, /security module/],
    ["EMFILE", 80, /LimitNOFILE/],
    ["ESOMETHING", 80, /ESOMETHING/],
  ];
  for (const [name, port, expected] of cases) {
    await t.step(`${name} on port ${port}`, () => {
      assertMatch(listenProblem(systemError(name), { address: ADDRESS, port }), expected);
    });
  }
});
