import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNftMachine } from "../../../tests/support/fakes/fake_nft_machine.ts";
import { NftError } from "./nft_error.ts";
import { nftFamily } from "./nft_objects.ts";
import { NftRunner } from "./nft_runner.ts";

const MISSING = { code: 1, stderr: "Error: No such file or directory\nlist table ip kube-relay\n" };
const TABLE = "table ip kube-relay {\n\tchain services {\n\t\tdrop\n\t}\n}\n";
const INPUT = {
  toLines: () => ["add table ip kube-relay", "add chain ip kube-relay services"],
  ownerOf: (line: number) => line === 2 ? "ns/web/TCP" : undefined,
  text: () => ["add table ip kube-relay\nadd chain ", "ip kube-relay services\n"],
};

function runnerOn(commands: FakeCommandRunner, family: "IPv4" | "IPv6" = "IPv4"): NftRunner {
  return new NftRunner({ commands }, { family: nftFamily(family), name: "kube-relay" });
}

Deno.test("NftRunner.read() returns the table of its family, and undefined for a missing one", async () => {
  const commands = new FakeCommandRunner()
    .on("nft list table ip kube-relay", { stdout: TABLE })
    .on("nft list table ip6 kube-relay", MISSING);
  assertEquals([...(await runnerOn(commands).read())?.rules.keys() ?? []], ["services"]);
  assertEquals(await runnerOn(commands, "IPv6").read(), undefined);
});

Deno.test("NftRunner reads a listing that has an element twice again, but not for ever", async () => {
  const table = (...keys: readonly string[]) =>
    `table ip kube-relay {\n\tset cluster-ips {\n\t\telements = { ${keys} }\n\t}\n}\n`;
  const [torn, whole] = [table("10.0.0.1", "10.0.0.1"), table("10.0.0.1", "10.0.0.2")];
  for (const [listings, readings] of [[[torn, whole], 2], [[torn], 5]] as const) {
    for (const method of ["read", "readWithCode"] as const) {
      const commands = new FakeCommandRunner();
      const given = [...listings];
      const listing = () => ({ stdout: (given.length > 1 ? given.shift() : given[0]) ?? "" });
      commands.on("nft list table", listing).on("nft --debug=netlink", listing);
      const found = await runnerOn(commands)[method]();
      assertEquals(found?.elements.get("cluster-ips")?.size, listings.length);
      assertEquals(commands.calls.length, readings);
    }
  }
});

Deno.test("NftRunner.read() refuses a truncated table, and text that is none", async () => {
  for (const stdout of [TABLE.slice(0, -3), "%$ noise\n", "", `${TABLE}more\n`]) {
    const commands = new FakeCommandRunner().on("nft list table", { stdout });
    const { kind } = await assertRejects(() => runnerOn(commands).read(), NftError);
    assertEquals(kind, "unclear", stdout);
  }
});

Deno.test("NftRunner.chains() gives the handles of chains, and skips foreign tables", async () => {
  const stdout = [
    "table ip other {\n\tchain services { # handle 3\n\t}\n}",
    "table ip kube-relay {\n\tchain layout-3 { # handle 15\n\t}\n\tchain nat-output { # handle 18",
    "\t\ttype nat hook output priority dstnat; policy accept;\n\t}\n}",
    "table ip kube-relay-probe {\n\tchain probe {\n\t}\n}\n",
  ].join("\n");
  const commands = new FakeCommandRunner()
    .on("nft --handle list chains ip", { stdout })
    .on("nft --handle list chains ip6", {});
  assertEquals([...await runnerOn(commands).chains()], [["layout-3", "15"], ["nat-output", "18"]]);
  assertEquals((await runnerOn(commands, "IPv6").chains()).size, 0);
});

Deno.test("NftRunner.write() passes the whole text to nft, and reports refusals", async () => {
  const commands = new FakeCommandRunner().on("nft -f -", {});
  await runnerOn(commands).write(INPUT);
  assertEquals(commands.calls.map(({ stdin }) => stdin), [INPUT.text().join("")]);
  const stderr = "/dev/stdin:2:1-9: Error: Could not process rule: Out of memory\n";
  commands.on("nft -f -", { code: 1, stderr });
  const { kind, lines } = await assertRejects(
    () => runnerOn(commands).write(INPUT),
    NftError,
    "of ns/web/TCP",
  );
  assertEquals([kind, lines.map(({ number }) => number)], ["refused", [2]]);
});

for (const failure of ["not-found", "not-permitted", "timeout", "failed"] as const) {
  Deno.test(`NftRunner describes the failed action of a program that ends as '${failure}'`, async () => {
    const actions = {
      "Cannot read table ip kube-relay of nftables": (runner: NftRunner) => runner.read(),
      "Cannot look for table ip kube-relay of nftables": (runner: NftRunner) => runner.chains(),
      "Cannot write table ip kube-relay of nftables": (runner: NftRunner) => runner.write(INPUT),
    };
    for (const [words, action] of Object.entries(actions)) {
      const runner = runnerOn(new FakeCommandRunner().failNext(failure));
      const { kind } = await assertRejects(async () => void await action(runner), NftError, words);
      assertEquals(kind, failure.startsWith("not-") ? "unavailable" : "unclear");
    }
  });
}

Deno.test("NftRunner.remove() deletes its table, if it is there, and no other one", async () => {
  const machine = new FakeNftMachine();
  const counts = { family: "ip", name: "kube-relay-counters" };
  const runners = [counts, { ...counts, family: "ip6" }].map((table) =>
    new NftRunner(machine, table)
  );
  machine.tool.run("add table ip kube-relay\nadd table ip kube-relay-counters\n");
  const areThere = () => Promise.all(runners.map((runner) => runner.isThere()));
  assertEquals(await areThere(), [true, false]);
  for (const runner of runners) await runner.remove();
  assertEquals(await areThere(), [false, false]);
  assertEquals(machine.tool.tables, ["ip kube-relay"]);
});
