import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { toolCapabilities } from "./capabilities.ts";

function saying(stdout: string): FakeCommandRunner {
  return new FakeCommandRunner().on("cat /proc/self/status", { stdout });
}

Deno.test("toolCapabilities() reads the effective mask", async () => {
  const all = [
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_SYS_MODULE",
    "CAP_SYS_ADMIN",
    "CAP_SYS_RESOURCE",
  ];
  const cases: readonly [mask: string, names: readonly string[]][] = [
    ["000001ffffffffff", all],
    ["0000000000000000", []],
    ["0000000000001400", ["CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN"]],
  ];
  for (const [mask, names] of cases) {
    const commands = saying(`Name:\tcat\nCapPrm:\t0\nCapEff:\t${mask}\nCapBnd:\t0\n`);
    assertEquals(await toolCapabilities({ commands }), names, mask);
  }
});

Deno.test("toolCapabilities() is undefined where nobody tells", async () => {
  assertEquals(await toolCapabilities({ commands: saying("rubbish\x00") }), undefined);
  assertEquals(await toolCapabilities({ commands: saying("CapEff:\tzz\n") }), undefined);
  for (const failure of ["not-found", "not-permitted", "timeout", "failed"] as const) {
    const commands = saying("").failNext(failure);
    assertEquals(await toolCapabilities({ commands }), undefined, failure);
  }
});
