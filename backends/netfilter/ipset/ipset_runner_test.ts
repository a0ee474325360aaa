import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { listSets, readSets, restoreSets } from "./ipset_runner.ts";
import { addLine, createLine, createOptions } from "./ipset_text.ts";

Deno.test("readSets() reads the sets of one owner with their entries", async () => {
  const commands = new FakeCommandRunner().on("ipset save", {
    stdout: "create OWN-1 hash:net family inet hashsize 64 maxelem 9\nadd OWN-1 10.0.0.0/8\n" +
      "create OTHER hash:ip family inet\nadd OTHER 10.0.0.1\n",
  });
  const isWanted = (name: string) => name.startsWith("OWN-");
  const seen = await readSets({ clock: new FakeClock(), commands }, { isWanted });
  assertEquals(seen, {
    state: "seen",
    value: new Map([
      ["OWN-1", { options: "hash:net family inet maxelem 9", entries: new Set(["10.0.0.0/8"]) }],
    ]),
  });
});

Deno.test("listSets() names all sets, and distinguishes a missing tool from a refusal", async () => {
  const commands = new FakeCommandRunner().on("ipset list -n", { stdout: "A\nB\n" });
  assertEquals(await listSets(commands), { state: "seen", value: ["A", "B"] });
  const refusing = new FakeCommandRunner().on("ipset", { code: 1, stderr: "not permitted" });
  assertEquals((await listSets(refusing)).state, "refused");
  const missing = new FakeCommandRunner();
  missing.failNext("not-found");
  assertEquals((await listSets(missing)).state, "absent");
});

Deno.test("restoreSets() runs one process for lines of any set", async () => {
  const commands = new FakeCommandRunner().on("ipset restore", {});
  const options = createOptions("hash:net", { family: "IPv6", maxEntries: 9 });
  const lines = [createLine("OWN-1", options), addLine("OWN-1", "fd00::/8")];
  await restoreSets(commands, { lines, timeoutMs: 1_000 });
  assertEquals(
    commands.calls.map(({ stdin }) => stdin),
    [
      "create OWN-1 hash:net family inet6 hashsize 1024 maxelem 9 -exist\n" +
      "add OWN-1 fd00::/8 -exist\n",
    ],
  );
});
