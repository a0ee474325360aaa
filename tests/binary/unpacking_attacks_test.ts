/**
 * Tests folders that another user prepared, and files that another user changed: they are never
 * run, and always named.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { isMissing, testUnless } from "../support/requirement.ts";
import { BUILT, EXECUTABLE_REQUIREMENTS } from "./executable.ts";
import { PackedScript, SCENARIO_REQUIREMENTS } from "./packed_script.ts";

const ignore = isMissing("tests/binary/unpacking_attacks_test.ts", SCENARIO_REQUIREMENTS);
const test = testUnless(ignore);

/** The folder above the first place. */
const ABOVE = "${B%/*}";

/**
 * Folders that must be skipped, their preparation, and the expected message. `$B` is the first place, `$B/$ID`
 * the directory in it that is run from, `$U` the caller.
 */
const PLANTED_PLACES = String.raw`
a directory of another user | mkdir -m 700 $B; chown 1234 $B | belongs to uid 1234
a planted program below a directory of another user | mkdir -m 700 $B; plant $B/$ID; chown -R 1234 $B | belongs to uid 1234
a directory that its group may write | mkdir $B; chmod 770 $B | can be written by others
a directory that all may write | mkdir $B; chmod 1777 $B | can be written by others
a directory that others may enter | mkdir $B; chmod 711 $B | its mode must be 0700
a symbolic link | mkdir -m 700 $B.real; ln -s $B.real $B | symbolic link is not followed
a dangling symbolic link | ln -s /nowhere $B | symbolic link is not followed
a file in its place | : >$B | is no directory
a planted version directory of another user | mkdir -m 700 $B; plant $B/$ID; chown 1234 $B/$ID | belongs to uid 1234
a version directory that its group may write | mkdir -m 700 $B; plant $B/$ID; chmod 770 $B/$ID | can be written by others
a version directory that is a symbolic link | mkdir -m 700 $B; plant $B.real; ln -s $B.real $B/$ID | symbolic link is not followed
a directory above it that all may write | mkdir -m 700 $B; chmod 777 ${ABOVE} | can be written by others
a directory that cannot be made | mount -o remount,ro ${ABOVE} | cannot be made
a directory that cannot be written | mkdir -m 700 $B; chown $U $B; mount -o remount,ro ${ABOVE} | cannot be written
a file system without exec | mount -o remount,noexec ${ABOVE} | cannot hold programs
`.trim().split("\n").map((line) => line.split(" | "));

/**
 * The user, the first folder, the next folder if the first is refused, and the command that sets
 * the owner.
 */
const CALLERS = [
  {
    caller: "root",
    uid: 0,
    first: "/var/cache/kube-relay",
    next: "/run/kube-relay",
    prelude: "",
    run: "root",
    own: "",
  },
  {
    caller: "a plain user",
    uid: 65534,
    first: "/run/home/.cache/kube-relay",
    next: "/run/user/kube-relay",
    prelude: "install -d -o 65534 -m 0700 /run/user $H/.cache; mount -t tmpfs tmpfs $H/.cache;" +
      "chown 65534 $H/.cache; chmod 0700 $H/.cache",
    run: "plain HOME=$H XDG_RUNTIME_DIR=/run/user",
    // What the planting left to root would be refused for that alone.
    own: "find ${B%/*} -user 0 -exec chown -h 65534 {} + 2>/dev/null",
  },
];

for (const { caller, uid, first, next, prelude, run, own } of CALLERS) {
  test(`${caller} uses the first folder if nothing is wrong with it`, async () => {
    await using packed = await PackedScript.create();
    const { stdout, stderr } = await packed.play(`${prelude}\n${run}`);
    assertEquals(stdout, `kube-relay v9.8.7 from ${first}/${packed.id}\n`);
    assertEquals(stderr, "");
  });
  for (const [what, prepare, says] of PLANTED_PLACES) {
    test(`${caller} skips ${what}`, async () => {
      await using packed = await PackedScript.create();
      const { stdout, stderr } = await packed.play(
        `${prelude}\nB=${first} U=${uid}\n${prepare}\n${own}\n${run}`,
      );
      assertEquals(stdout, `kube-relay v9.8.7 from ${next}/${packed.id}\n`);
      assertMatch(stderr, new RegExp(`^kube-relay: skipped ${first}: .*${says}`));
      assertEquals(stderr.trim().split("\n").length, 1, stderr);
    });
  }
}

/** Changes of the unpacked files after a good first start. `$P` is the directory that is run from. */
const CHANGED_FILES: readonly (readonly [what: string, change: string])[] = [
  [
    "the program, with its size and time as before",
    'cp -p $P/kube-relay /run/old; size=$(stat -c %s $P/kube-relay); { printf "#!/bin/sh\\necho PLANTED\\nexit\\n"; ' +
    "head -c $size /dev/zero; } | head -c $size >$P/kube-relay; touch -r /run/old $P/kube-relay",
  ],
  ["the program, cut short", "truncate -s 10 $P/kube-relay"],
  ["the program, gone", "rm $P/kube-relay"],
  ["the program, a symbolic link", "plant /run/bad; ln -sf /run/bad/kube-relay $P/kube-relay"],
  ["the program, writable by its group", "chmod 0770 $P/kube-relay"],
  ["the program, of another user", "chown 1234 $P/kube-relay"],
  ["the script, longer", "echo 'evil()' >>$P/main.js"],
  ["a part of the script, changed", "sed -i s/part/hole/ $P/chunk.js"],
  ["the script, gone", "rm $P/main.js"],
  ["the script, a pipe", "rm $P/main.js; mkfifo -m 600 $P/main.js"],
  ["the code cache, a symbolic link", "rm -r $P/v8; mkdir -m 700 /run/x; ln -s /run/x $P/v8"],
  ["the code cache, writable by others", "chmod 0777 $P/v8"],
];

for (const [what, change] of CHANGED_FILES) {
  test(`a changed file is not run but unpacked again: ${what}`, async () => {
    await using packed = await PackedScript.create();
    const { stdout, stderr } = await packed.play(
      `P=/var/cache/kube-relay/$ID; root; ${change}; root; ls -A /var/cache/kube-relay $P; root`,
    );
    const from = `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`;
    const listing = `/var/cache/kube-relay:\n${packed.id}\n\n` +
      `/var/cache/kube-relay/${packed.id}:\nchunk.js\neverything.js\nkube-relay\nmain.js\nv8\n`;
    assertEquals(stdout, `${from}${from}${listing}${from}`);
    // The third start finds all well again.
    assertMatch(stderr, /^kube-relay: \S+ .*; unpacking it again\n$/);
  });
}

test("a program that was replaced by a directory makes its place unfit", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(
    "P=/var/cache/kube-relay/$ID; root; rm $P/kube-relay; mkdir $P/kube-relay; root",
  );
  assert(stdout.endsWith(`from /run/kube-relay/${packed.id}\n`), stdout);
  assertMatch(stderr, /skipped \/var\/cache\/kube-relay: .*kube-relay cannot be replaced/);
});

test("a planted version directory of the caller's own is verified before it is run", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(
    `P=/var/cache/kube-relay/$ID; mkdir -m 700 \${P%/*}; plant $P
    for part in chunk everything; do : >$P/$part.js; chmod 600 $P/$part.js; done; root`,
  );
  assertEquals(stdout, `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`);
  assertMatch(
    stderr,
    /kube-relay is not what was unpacked: its sha256 is [0-9a-f]{64}; unpacking/,
  );
});

test("root uses no folder of HOME, XDG_* or TMPDIR, and no user uses /tmp", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      mkdir /run/kube-relay /run/a /run/b /run/c /run/d; chmod 755 /run/kube-relay
      mount -o remount,ro /var/cache
      root HOME=/run/a XDG_CACHE_HOME=/run/b XDG_RUNTIME_DIR=/run/c TMPDIR=/run/d; echo "exit $?"
      plain TMPDIR=/run/d; echo "exit $?"
      find /run/a /run/b /run/c /run/d /tmp -mindepth 1`);
  assertEquals(stdout, "exit 1\nexit 1\n");
  assertMatch(stderr, /cannot unpack v9\.8\.7: set CACHE_DIRECTORY to a directory that belongs/);
});

test("a file that was damaged on its way is not run", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      size=$(stat -c %s $PROGRAM); cp $PROGRAM /run/program; PROGRAM=/run/program
      printf XXXX | dd of=/run/program bs=1 seek=$((size - 60)) conv=notrunc 2>/dev/null
      root; echo "exit $?"; find /var/cache /run/kube-relay -mindepth 1`);
  assertEquals(stdout, "exit 1\n/var/cache/kube-relay\n");
  assertMatch(stderr, /could not be filled: no room, or \/run\/program is damaged/);
});

Deno.test({
  name: "the built executable runs from no planted directory or symbolic link, and no changed file",
  ignore: ignore || isMissing("the attacks on the built executable", EXECUTABLE_REQUIREMENTS),
  async fn() {
    await using packed = await PackedScript.ofBuilt(BUILT);
    if (!packed) return; // Nothing is unpacked by the form that `deno compile` makes.
    const { stdout, stderr } = await packed.play(`
      ARGUMENTS='--version -v=1' B=/var/cache/kube-relay
      mkdir -m 700 $B; plant $B/$ID; chown 1234 $B; root; rm -r $B /run/kube-relay
      mkdir -m 700 $B.real; plant $B.real/$ID; ln -s $B.real $B; root; rm $B; rm -r /run/kube-relay
      root; plant $B/$ID; root; ls -A $B`);
    const version = "kube-relay v\\S+ \\(kube-proxy 1\\.36 compatible\\)\n";
    assertMatch(stdout, new RegExp(`^(${version}){4}${packed.id}\n$`));
    const [owner, link, changed, ...rest] = stderr.trim().split("\n");
    assertMatch(owner ?? "", /skipped \/var\/cache\/kube-relay: .* belongs to uid 1234/);
    assertMatch(
      link ?? "",
      /skipped \/var\/cache\/kube-relay: .*symbolic link is not followed/,
    );
    assertMatch(changed ?? "", /kube-relay is not what was unpacked: .*; unpacking it again/);
    assertEquals(rest, []);
  },
});
