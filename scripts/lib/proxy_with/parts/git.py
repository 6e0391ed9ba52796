"""git over smart HTTP: clones, pushes and fetches a repository of several megabytes."""

import os

from ..stage import Skipped, need, same

LIGHTTPD = """
server.document-root = "{dir}"
server.bind = "127.0.0.1"
server.port = {port}
server.modules = ("mod_alias", "mod_cgi", "mod_setenv")
# CGI requires the length of the content, so chunked content is buffered.
server.stream-request-body = 0
server.stream-response-body = 1
server.upload-dirs = ("{dir}")
alias.url = ("/git" => "{backend}")
$HTTP["url"] =~ "^/git" {{
    cgi.assign = ("" => "")
    setenv.set-environment = ("GIT_PROJECT_ROOT" => "{dir}/served", "GIT_HTTP_EXPORT_ALL" => "1",
        "REMOTE_USER" => "tester", "HOME" => "{dir}")
}}
"""


def git(stage):
    program = need("git", "git")
    lighttpd = need("lighttpd", "lighttpd")
    backend = stage.run([program, "--exec-path"]).decode().strip() + "/git-http-backend"
    if not os.path.exists(backend):
        raise Skipped(f"there is no {backend} (package: git)")
    env = {**os.environ, "HOME": str(stage.dir), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
           "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example", "GIT_COMMITTER_NAME": "a",
           "GIT_COMMITTER_EMAIL": "a@example"}

    def run(where, *words):
        return stage.run([program, "-C", stage.dir / where, *words], env=env).decode().strip()

    def commit(where, name, size):
        (stage.dir / where / name).write_bytes(os.urandom(size))
        run(where, "add", "-A")
        run(where, "commit", "-qm", name)

    run("", "init", "-q", "-b", "main", "made")
    for i in range(20):
        commit("made", f"file{i}", 300_000)
    run("", "clone", "-q", "--bare", "made", "served/r.git")
    run("served/r.git", "config", "http.receivepack", "true")

    port = stage.port()
    conf = stage.dir / "lighttpd.conf"
    conf.write_text(LIGHTTPD.format(dir=stage.dir, port=port, backend=backend))
    stage.start("lighttpd", [lighttpd, "-D", "-f", conf], port)
    url = f"http://{stage.reverse(f'127.0.0.1:{port}')}/git/r.git"

    run("", "clone", "-q", url, "cloned")
    same("cloned commit", run("cloned", "rev-parse", "HEAD"), run("made", "rev-parse", "HEAD"))
    run("cloned", "fsck", "--full", "--strict")
    # Larger than http.postBuffer, so git sends it chunked.
    commit("cloned", "pushed", 4_000_000)
    run("cloned", "push", "-q", "origin", "main")
    same("pushed commit", run("served/r.git", "rev-parse", "main"), run("cloned", "rev-parse", "HEAD"))
    run("served/r.git", "fsck", "--full", "--strict")
    commit("cloned", "small", 100)
    run("cloned", "push", "-q", "origin", "main")
    run("made", "fetch", "-q", url, "main")
    same("fetched commit", run("made", "rev-parse", "FETCH_HEAD"), run("cloned", "rev-parse", "HEAD"))
    run("", "clone", "-q", "--depth", "1", url, "shallow")
    return "6 MB cloned, 4 MB and a small commit pushed, fetched, shallow clone"
