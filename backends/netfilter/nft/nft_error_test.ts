import { assertEquals } from "@std/assert";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { errorOfCommand, errorOfRead, errorOfWrite, NftError, saysNotFound } from "./nft_error.ts";

const ACTION = "write table ip kube-relay of nftables";
const INPUT = {
  toLines: () => [
    "add element ip kube-relay service-ips {",
    "  1.2.3.4 . tcp . 80 : goto none",
    "}",
  ],
  ownerOf: (line: number) => line === 2 ? "ns/web/TCP" : undefined,
};

Deno.test("errorOfWrite() names the refused element, its owner and the reason", () => {
  const stderr = "/dev/stdin:2:3-20: Error: Could not process rule: No such file or directory\n" +
    "  1.2.3.4 . tcp . 80 : goto none\n  ^^^^^^^^^^^^^^^^^^\n";
  const error = errorOfWrite({ action: ACTION, code: 1, stderr }, INPUT);
  assertEquals(error.kind, "refused");
  assertEquals(error.lines, [{
    number: 2,
    reason: "Could not process rule: No such file or directory",
    text: "1.2.3.4 . tcp . 80 : goto none",
    owner: "ns/web/TCP",
  }]);
  assertEquals(
    error.message,
    'Cannot write table ip kube-relay of nftables: line 2 "1.2.3.4 . tcp . 80 : goto none" of ns/web/TCP: ' +
      "Could not process rule: No such file or directory",
  );
});

Deno.test("errorOfWrite() separates failures of the tool from refused lines", () => {
  const cases: readonly [code: number, stderr: string, kind: NftError["kind"]][] = [
    [1, "/dev/stdin:9:1-2: Error: syntax error", "unclear"],
    [1, "internal:0:0-0: Error: conflicting protocols specified: tcp vs. th", "unclear"],
    [1, "netlink: Error: cache initialization failed: Operation not permitted", "unavailable"],
    [134, "nft: netlink_linearize.c:799: Assertion failed", "unclear"],
    [1, "", "unclear"],
  ];
  for (const [code, stderr, kind] of cases) {
    assertEquals(errorOfWrite({ action: ACTION, code, stderr }, INPUT).kind, kind, stderr);
  }
});

Deno.test("errorOfCommand() and errorOfRead() separate a missing program from one that hung", () => {
  const of = (kind: CommandError["kind"]) => {
    const error = errorOfCommand("read", new CommandError("nft", [], kind, "why"));
    return error instanceof NftError ? error.kind : error;
  };
  assertEquals([of("not-found"), of("not-permitted")], ["unavailable", "unavailable"]);
  assertEquals([of("timeout"), of("failed")], ["unclear", "unclear"]);
  assertEquals(
    errorOfRead({ action: ACTION, code: 1, stderr: "Operation not permitted" }).kind,
    "unavailable",
  );
  assertEquals(saysNotFound("Error: No such file or directory\nlist table"), true);
});
