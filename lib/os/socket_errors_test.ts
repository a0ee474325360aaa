import { assertEquals, assertMatch } from "@std/assert";
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

/** Returns the real error of a call. */
function thrownBy(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("It did not throw");
}

Deno.test("systemErrorOf() names the errors of Deno", async (t) => {
  await t.step("EADDRINUSE", () => {
    using first = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = first.addr;
    const error = thrownBy(() => Deno.listen({ hostname: "127.0.0.1", port }));
    assertEquals(systemErrorOf(error), "EADDRINUSE");
    assertEquals(isPortRefused(error), true);
  });
  await t.step("EADDRNOTAVAIL", () => {
    // 192.0.2.0/24 is for documentation: no machine has it.
    const error = thrownBy(() => Deno.listen({ hostname: "192.0.2.1", port: 0 }));
    assertEquals(systemErrorOf(error), "EADDRNOTAVAIL");
    assertEquals(isPortRefused(error), false);
  });
  await t.step("none for other errors", () => {
    for (
      const error of [new Error("x"), "text", undefined, Object.assign(new Error(), { code: 1 })]
    ) {
      assertEquals(systemErrorOf(error), undefined);
    }
  });
});

Deno.test("isOutOfSockets() knows when no endpoint is to blame", () => {
  const names = ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNREFUSED", "EADDRINUSE"];
  assertEquals(
    names.map((name) => isOutOfSockets(systemError(name))),
    [true, true, true, true, false, false],
  );
});

Deno.test("isOwnShortage() knows that no local port is left, besides sockets", () => {
  const names = ["EMFILE", "EADDRNOTAVAIL", "ECONNREFUSED", "EHOSTUNREACH"];
  assertEquals(names.map((name) => isOwnShortage(systemError(name))), [true, true, false, false]);
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
