# Agents of a load test on Nomad, on separate machines if possible. Register the job once with the number
# of agents. Each load test is a dispatch with the plan as its payload:
#
#     nomad job run -var size=5 -var image=registry.example/hearken hearken-load.nomad.hcl
#     nomad job dispatch -meta start=$(date -u -d '+60 seconds' +%Y-%m-%dT%H:%M:%SZ) hearken-load plan.toml

variable "size" {
  type    = number
  default = 3
}

variable "image" {
  type    = string
  default = "hearken:latest"
}

job "hearken-load" {
  type = "batch"

  parameterized {
    payload       = "required"
    meta_required = ["start"]
  }

  group "agents" {
    count = var.size

    # An agent that was restarted could not catch up with the others.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    spread {
      attribute = "${node.unique.id}"
    }

    task "load" {
      driver = "docker"

      dispatch_payload {
        file = "plan.toml"
      }

      # The rank is in NOMAD_ALLOC_INDEX.
      config {
        image = var.image
        args = [
          "load", "--agent",
          "--plan", "${NOMAD_TASK_DIR}/plan.toml",
          "--size", "${var.size}",
          "--start-at", "${NOMAD_META_start}",
        ]
      }

      resources {
        cores  = 1
        memory = 256
      }
    }
  }
}
