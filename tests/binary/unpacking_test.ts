/**
 * Tests where and how the self-extracting form unpacks if no other program interferes, and what the
 * program sees.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { testNeeding } from "../support/requirement.ts";
import { PackedScript, SCENARIO_REQUIREMENTS } from "./packed_script.ts";

const test = testNeeding("tests/binary/unpacking_test.ts", SCENARIO_REQUIREMENTS);

/** Shells that /bin/sh may be. */
const SHELLS = ["dash", "busybox ash", "bash --posix"];

/** Environment, and the place that is taken. `/run/given` is a directory that was made for the caller. */
const PLACES: readonly (readonly [run: string, place: string])[] = [
  ["root CACHE_DIRECTORY=/run/given", "/run/given"],
  ["root CACHE_DIRECTORY=/run/given:/run/other", "/run/given"],
  ["root CACHE_DIRECTORY=/run/link", "/run/given"],
  ["root HOME=/root", "/var/cache/kube-relay"],
  ["plain HOME=$H", "/run/home/.cache/kube-relay"],
  ["plain HOME=$H XDG_CACHE_HOME=$H/cache", "/run/home/cache/kube-relay"],
  ["plain HOME=/nonexistent XDG_RUNTIME_DIR=$H", "/run/home/kube-relay"],
  ["chown 65534 /run/given; plain CACHE_DIRECTORY=/run/given HOME=$H", "/run/given"],
];

for (const [run, place] of PLACES) {
  test(`the self-extracting form unpacks into ${place} on '${run}'`, async () => {
    await using packed = await PackedScript.create();
    const { stdout } = await packed.play(
      `mkdir -m 755 /run/given; ln -s given /run/link; ${run}`,
    );
    assertEquals(stdout, `kube-relay v9.8.7 from ${place}/${packed.id}\n`);
  });
}

test("a $CACHE_DIRECTORY that is not absolute, not the caller's or open to others is skipped", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      mkdir /run/open && chmod 777 /run/open; mkdir /run/alien && chown 1234 /run/alien; cd /run
      for place in cache /run/open /run/alien /run/missing; do root CACHE_DIRECTORY=$place; done`);
  const taken = `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`;
  assertEquals(stdout, taken.repeat(4));
  assertMatch(
    stderr,
    /skipped cache: expected an absolute path\n.*open can be written.*\n.*uid 1234.*\n.*does not exist.*\n$/,
  );
});

for (const shell of SHELLS) {
  test(`the self-extracting form is the same to ${shell}: unpacks, runs again, repairs, refuses`, async () => {
    await using packed = await PackedScript.create();
    const { stdout, stderr } = await packed.play(
      `P=/var/cache/kube-relay/$ID
        root; root; echo x >>$P/kube-relay; root; mv $P /run/real; ln -s /run/real $P; root
        stat -c '%a %u %F' /run/real /run/real/* /run/kube-relay/verified-*`,
      { shell },
    );
    const from = (place: string) => `kube-relay v9.8.7 from ${place}/kube-relay/${packed.id}\n`;
    assertEquals(
      stdout,
      from("/var/cache").repeat(3) + from("/run") +
        "700 0 directory\n600 0 regular file\n600 0 regular file\n700 0 regular file\n" +
        "600 0 regular file\n" +
        "700 0 directory\n" +
        "600 0 regular file\n",
    );
    assertMatch(
      stderr,
      /kube-relay is not what .*unpacking it again\n.*skipped.*symbolic link.*\n$/,
    );
  });
}

for (const shell of SHELLS) {
  test(`a first start that takes longer than two seconds says why, once, by ${shell}`, async () => {
    await using packed = await PackedScript.create();
    const { stdout, stderr } = await packed.play(
      `cp $(command -v gzip) /run/gzip
        printf '#!/bin/sh\n[ -e /run/slept ] || . /run/pause; exec /run/gzip "$@"\n' >/run/slow && chmod 755 /run/slow
        echo ': >/run/slept; for _ in $(seq 300); do ! grep -q wait /run/errors || break; sleep 0.1; done' >/run/pause
        mount --bind /run/slow $(readlink -f $(command -v gzip))
        root 2>/run/errors; root 2>>/run/errors; cat /run/errors >&2`,
      { shell, keepsNotice: true },
    );
    assertEquals(stdout, `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`.repeat(2));
    assertEquals(
      stderr,
      "kube-relay: unpacking and comparing v9.8.7, once in each boot; please wait\n",
    );
  });
}

for (const shell of SHELLS) {
  test(`a first start leaves no process of the script to the program, by ${shell}`, async () => {
    await using packed = await PackedScript.create();
    const { stdout } = await packed.play("ARGUMENTS=children; root", { shell });
    assert(stdout.endsWith("\nchildren []\n"), stdout);
  });
}

test("four first starts at once all run, from one directory, and leave nothing else", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      for i in 1 2 3 4; do root & done; wait
      ls -A /var/cache/kube-relay`);
  const from = `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`;
  assertEquals(stdout, `${from.repeat(4)}${packed.id}\n`);
  assertEquals(stderr, "");
});

test("four starts at once that find a changed file all run the packed one", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      root; echo changed >>/var/cache/kube-relay/$ID/main.js
      for i in 1 2 3 4; do root & done; wait
      ls -A /var/cache/kube-relay; grep -c changed /var/cache/kube-relay/$ID/main.js || true`);
  const from = `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`;
  assertEquals(stdout, `${from.repeat(5)}${packed.id}\n0\n`);
});

test("the files are verified once in each boot, by the marker", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      M=/run/kube-relay/verified-$ID
      look() { stat -c %i:%z $M; }
      root >/dev/null; before=$(look)
      root >/dev/null; [ "$before" = "$(look)" ] && echo "second start: not verified"
      sed -i 's/^[0-9a-f-]*/11111111-2222-3333-4444-555555555555/' $M; before=$(look)
      root >/dev/null; [ "$before" = "$(look)" ] || echo "another boot: verified"
      read boot place <$M; [ $boot = $(cat /proc/sys/kernel/random/boot_id) ] && echo "marked"`);
  assertEquals(stdout, "second start: not verified\nanother boot: verified\nmarked\n");
});

test("all scripts are loaded once after they were verified, to fill the code cache", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      V=/var/cache/kube-relay/$ID/v8; root >/dev/null; ls $V; rm $V/*; root >/dev/null; ls $V`);
  assertEquals(stdout, "ran-everything.js\nran-main.js\nran-main.js\n");
});

/** Programs that the script starts somewhere. */
const STARTED =
  /^\++ (cat|env|find|gzip|head|id|mkdir|mktemp|mv|rm|sed|sha256sum|stat|tail|tr)\b/gm;

test("a start in the same boot starts four programs before Deno, for any user", async () => {
  await using packed = await PackedScript.create();
  const { stderr } = await packed.play(`
      mkdir -m 700 /run/user && chown 65534 /run/user
      twice() { "$@" >/dev/null && SHELL_OF_TEST='sh -x' && "$@" >/dev/null && SHELL_OF_TEST= &&
          echo next >&2; }
      twice root; twice root CACHE_DIRECTORY=/var/cache/kube-relay RUNTIME_DIRECTORY=/run/kube-relay
      twice plain HOME=$H XDG_RUNTIME_DIR=/run/user`);
  const [...starts] = stderr.split("next\n").slice(0, 3);
  const programs = starts.map((text) => [...text.matchAll(STARTED)].map(([, name]) => name));
  assertEquals(programs, Array(3).fill(["stat", "stat", "stat", "cat"]));
});

test("a forged marker is ignored in a folder that other users could write", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      P=/var/cache/kube-relay/$ID M=/run/kube-relay/verified-$ID; root >/dev/null
      forge() { echo '// changed' >>$P/main.js; { echo "$(cat /proc/sys/kernel/random/boot_id) $P"
          cd $P && stat -c '%n %f %u %i %s %y %z' kube-relay chunk.js everything.js main.js; } >$M; }
      # Where only root can write, root's word is taken: this shows that the forgery is a good one.
      forge; root >/dev/null; tail -n 1 $P/main.js
      forge; chmod 777 /run/kube-relay; root >/dev/null; tail -n 1 $P/main.js`);
  assertEquals(stdout, "// changed\n// the program\n");
  assertMatch(stderr, /^kube-relay: \S+main\.js is not what was .*; unpacking it again\n$/);
});

test("a read-only place that was filled beforehand is used, as in an image", async () => {
  await using packed = await PackedScript.create();
  const { stdout, stderr } = await packed.play(`
      root RUNTIME_DIRECTORY=/nowhere; mount -o remount,ro /var/cache; mount -o remount,ro /run
      root RUNTIME_DIRECTORY=/nowhere`);
  assertEquals(stdout, `kube-relay v9.8.7 from /var/cache/kube-relay/${packed.id}\n`.repeat(2));
  assertEquals(stderr, "");
});

for (const shell of SHELLS) {
  test(`versions unused for a week and broken-off unpackings are removed, nothing else is, by ${shell}`, async () => {
    await using packed = await PackedScript.create();
    const { stdout } = await packed.play(
      `B=/var/cache/kube-relay; mkdir -m 700 $B; cd $B; mkfifo /run/started /run/end
      mkdir v1.0.0-0123456789abcdef v1.0.1-0123456789abcdef v1.0.2-0123456789abcdef .unpack.old .unpack.new v1-mine
      cp /proc/$$/exe v1.0.2-0123456789abcdef/kube-relay
      v1.0.2-0123456789abcdef/kube-relay -c 'echo >/run/started; read -r _ </run/end' & read -r _ </run/started
      touch -d '8 days ago' v1.0.0-* v1.0.2-* v1-mine; touch -d '1 hour ago' .unpack.old
      root >/dev/null; ls -A | grep -v "^$ID$"; echo >/run/end; wait`,
      { shell },
    );
    assertEquals(
      stdout,
      ".unpack.new\nv1-mine\nv1.0.1-0123456789abcdef\nv1.0.2-0123456789abcdef\n",
    );
  });
}

test("the leftovers of a killed first start are removed by a later start, in use or not", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      root >/dev/null; cd /var/cache/kube-relay; mkdir .unpack.dead .unpack.alive
      touch -d '11 minutes ago' .unpack.dead; root >/dev/null; ls -A | grep -v "^$ID$"`);
  assertEquals(stdout, ".unpack.alive\n");
});

test("a verb is silent about a skipped folder, except with -v, or if none is left", async () => {
  await using packed = await PackedScript.create();
  const { stderr } = await packed.play(`
      mkdir /var/cache/kube-relay && chmod 755 /var/cache/kube-relay
      for ARGUMENTS in status --version --help; do root; done
      echo "-v" >&2; ARGUMENTS='status -v' root
      echo "service" >&2; ARGUMENTS=--mode=nftables root
      chmod 755 /run/kube-relay
      echo "nowhere" >&2; ARGUMENTS=status root || :`);
  assertMatch(
    stderr,
    /^-v\n.*cache.*mode must be 0700\nservice\n.*cache.*0700\nnowhere\n.*cache.*\n.*skipped \/run.*\n.*cannot unpack/,
  );
});

test("the program gets the caller's arguments, PATH and umask, and none of Deno's variables", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      umask 027
      env -i PATH=/bin:/somewhere $PROGRAM show 'two words' '' '*' '$(id)'
      ARGUMENTS=environment
      root HOME=$H NODE_NAME=n1 DENO_DIR=/x DENO_V8_FLAGS=--x DENO_CERT=/x NODE_OPTIONS=--require=/x \\
        NODE_EXTRA_CA_CERTS=/x NODE_CHANNEL_FD=3 OTEL_DENO=true HTTPS_PROXY=http://127.0.0.1:1`);
  assert(
    stdout.includes("argument [two words]\nargument []\nargument [*]\nargument [$(id)]\n"),
    stdout,
  );
  const environment = stdout.split("\n").filter((line) => /^[A-Z_]+=|^umask/.test(line)).sort();
  assertEquals(environment.filter((line) => !line.startsWith("PWD=")), [
    `DENO_DIR=/var/cache/kube-relay/${packed.id}/v8`,
    "DENO_NO_UPDATE_CHECK=1",
    `HOME=/var/cache/kube-relay/${packed.id}`,
    "HTTPS_PROXY=http://127.0.0.1:1",
    "KUBE_RELAY_HOME=/run/home",
    "KUBE_RELAY_NAME=program",
    "NODE_NAME=n1",
    "PATH=/usr/bin:/bin",
    "umask 0027",
  ]);
});

test("the program has the process id that was started, and its exit code is passed on", async () => {
  await using packed = await PackedScript.create();
  const { stdout } = await packed.play(`
      root >/dev/null; ARGUMENTS=environment
      env -i PATH=/bin $PROGRAM environment >/run/out & echo "started $!"; wait; cat /run/out
      ARGUMENTS='exit 7'; root; echo "exit $?"`);
  const [, started] = /started (\d+)/.exec(stdout) ?? [];
  assert(stdout.includes(`pid ${started}\n`), stdout);
  assert(stdout.endsWith("exit 7\n"), stdout);
});

test("the self-extracting form puts the folders of --tools-path first in the program's PATH", async () => {
  await using packed = await PackedScript.create();
  const asked = [
    "environment",
    "environment --tools-path=/opt/a,/opt/b",
    "environment --tools-path /opt/a --v=2 --tools_path=/opt/b",
    "environment --tools-path=relative",
    "environment --tools-path",
    "environment -- --tools-path=/opt/a",
  ];
  const { stdout } = await packed.play(
    asked.map((each) => `ARGUMENTS="${each}"; root | grep ^PATH=`).join("\n"),
  );
  const plain = "PATH=/usr/bin:/bin\n";
  const extended = "PATH=/opt/a:/opt/b:/usr/bin:/bin\n";
  assertEquals(stdout, plain + extended.repeat(2) + plain.repeat(3));
});
